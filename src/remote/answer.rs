//! The agent's answers as they arrive: lines with a marker, some followed by bytes. Pure.

use bytes::{Buf, Bytes, BytesMut};

/// One of the two output streams of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// The file name of the stream, on both sides.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// One answer of the agent; `slurm-templates/agent.sh` says what each means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The agent is ready.
    Hello {
        /// The account it runs under.
        user: String,
        /// Its numeric user id.
        uid: u32,
        /// The node it runs on.
        host: String,
        /// The remote root, resolved.
        root: String,
    },
    /// The agent cannot work there.
    Refused {
        /// Why.
        words: String,
    },
    /// A request was carried out.
    Done {
        /// The request.
        id: u64,
        /// The exit code of its function.
        code: u8,
        /// What the function printed.
        stdout: Bytes,
        /// What it complained of.
        stderr: Bytes,
    },
    /// A part of an artifact; empty if it is not there.
    Bytes {
        /// The request.
        id: u64,
        /// The bytes.
        data: Bytes,
    },
    /// The launcher's state line changed.
    State {
        /// The attempt that is followed.
        name: String,
        /// The line.
        words: String,
    },
    /// A new line of the attempt's events.
    Event {
        /// The attempt.
        name: String,
        /// `events` (the launcher's) or `app.0` (the step's).
        file: String,
        /// The line.
        words: String,
    },
    /// New output.
    Data {
        /// The attempt.
        name: String,
        /// Which stream.
        stream: Stream,
        /// Where in the stream the bytes begin.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// The attempt is over.
    End {
        /// The attempt.
        name: String,
        /// `result.json`, empty if there is none (the request was refused).
        result: Bytes,
        /// The last words of srun or of the unpacking.
        said: Bytes,
    },
}

/// What came back is not what the agent says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the remote shell answered `{line}`, which is not part of the protocol")]
pub struct AnswerError {
    /// The line, shortened.
    pub line: String,
}

/// Lengths above this are a broken stream, not an answer; the agent never sends more than 1 MiB at once.
const MAX_PAYLOAD: usize = 64 << 20;
/// How much of what a login shell printed is kept for diagnosis.
const MAX_NOISE: usize = 4096;

/// Cuts a byte stream into answers.
#[derive(Debug)]
pub struct AnswerParser {
    marker: String,
    buffer: BytesMut,
    open: Option<(Vec<String>, usize)>,
    noise: String,
}

impl AnswerParser {
    /// A parser for answers marked with `nonce`.
    pub fn new(nonce: &str) -> Self {
        Self {
            marker: format!("@{nonce} "),
            buffer: BytesMut::new(),
            open: None,
            noise: String::new(),
        }
    }

    /// Takes what arrived.
    pub fn feed(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// What was printed that is not ours, for example by a login script, up to a bound.
    pub fn noise(&self) -> &str {
        &self.noise
    }

    /// The next whole answer, or `None` until more arrives.
    ///
    /// # Errors
    /// A marked line that is no answer.
    pub fn next_answer(&mut self) -> Result<Option<Answer>, AnswerError> {
        loop {
            if let Some((words, length)) = &self.open {
                if self.buffer.len() < *length {
                    return Ok(None);
                }
                let payload = self.buffer.split_to(*length).freeze();
                let answer = with_payload(words, payload);
                let line = words.join(" ");
                self.open = None;
                return answer.ok_or_else(|| AnswerError::of(&line)).map(Some);
            }
            let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
                return Ok(None);
            };
            let line = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
            self.buffer.advance(end + 1);
            let Some(rest) = line.strip_prefix(&self.marker) else {
                if self.noise.len() < MAX_NOISE && !line.is_empty() {
                    self.noise.push_str(&line);
                    self.noise.push('\n');
                }
                continue;
            };
            let words: Vec<String> = rest.split(' ').map(str::to_owned).collect();
            match payload_length(&words) {
                Some(0) => {
                    let answer = with_payload(&words, Bytes::new());
                    return answer.ok_or_else(|| AnswerError::of(&line)).map(Some);
                }
                Some(length) if length <= MAX_PAYLOAD => self.open = Some((words, length)),
                Some(_) | None => return Err(AnswerError::of(&line)),
            }
        }
    }
}

impl AnswerError {
    fn of(line: &str) -> Self {
        Self {
            line: line.chars().take(200).collect(),
        }
    }
}

/// How many bytes follow the line, or `None` if the line is not an answer at all.
fn payload_length(words: &[String]) -> Option<usize> {
    let number = |index: usize| words.get(index)?.parse::<usize>().ok();
    match words.first()?.as_str() {
        "hello" | "state" | "event" => Some(0),
        "refused" | "bytes" => number(2),
        "done" | "end" => {
            let first = number(words.len().checked_sub(2)?)?;
            first.checked_add(number(words.len() - 1)?)
        }
        "data" => number(4),
        _ => None,
    }
}

fn with_payload(words: &[String], mut payload: Bytes) -> Option<Answer> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Some(match words.as_slice() {
        ["hello", "1", user, uid, host, root @ ..] => Answer::Hello {
            user: (*user).to_owned(),
            uid: uid.parse().ok()?,
            host: (*host).to_owned(),
            root: root.join(" "),
        },
        ["refused", _, _] => Answer::Refused {
            words: String::from_utf8_lossy(&payload).trim().to_owned(),
        },
        ["done", id, code, out, _] => {
            let stdout = payload.split_to(out.parse::<usize>().ok()?);
            Answer::Done {
                id: id.parse().ok()?,
                code: code.parse().ok()?,
                stdout,
                stderr: payload,
            }
        }
        ["bytes", id, _] => Answer::Bytes {
            id: id.parse().ok()?,
            data: payload,
        },
        ["state", name, state @ ..] => Answer::State {
            name: (*name).to_owned(),
            words: state.join(" "),
        },
        ["event", name, file, event @ ..] => Answer::Event {
            name: (*name).to_owned(),
            file: (*file).to_owned(),
            words: event.join(" "),
        },
        ["data", name, stream, offset, _] => Answer::Data {
            name: (*name).to_owned(),
            stream: match *stream {
                "stdout" => Stream::Stdout,
                "stderr" => Stream::Stderr,
                _ => return None,
            },
            offset: offset.parse().ok()?,
            data: payload,
        },
        ["end", name, result, _] => {
            let result = payload.split_to(result.parse::<usize>().ok()?);
            Answer::End {
                name: (*name).to_owned(),
                result,
                said: payload,
            }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(parser: &mut AnswerParser) -> Vec<Answer> {
        std::iter::from_fn(|| parser.next_answer().unwrap()).collect()
    }

    const STREAM: &[u8] = b"Welcome to the cluster!\nno newline here\n@n hello 1 jane 20001 login1 /scratch/jane/vibesys\n\
        @n done 7 0 3 2\nabc!!@n data a.1 stdout 5 4\n@n \0@n event a.1 app.0 started 3 nid001 17.5\n@n end a.1 2 1\n{}x";

    #[test]
    fn answers_are_found_among_noise_whatever_their_bytes() {
        let mut parser = AnswerParser::new("n");
        parser.feed(STREAM);
        let answers = all(&mut parser);
        assert_eq!(answers.len(), 5);
        assert_eq!(
            answers[1],
            Answer::Done {
                id: 7,
                code: 0,
                stdout: Bytes::from("abc"),
                stderr: Bytes::from("!!")
            }
        );
        assert_eq!(
            answers[2],
            Answer::Data {
                name: "a.1".into(),
                stream: Stream::Stdout,
                offset: 5,
                data: Bytes::from_static(b"@n \0")
            }
        );
        assert_eq!(parser.noise(), "Welcome to the cluster!\nno newline here\n");
    }

    #[test]
    fn a_marked_line_that_is_no_answer_is_an_error() {
        for line in [
            "@n done x y z\n",
            "@n data a stdout 0 99999999999\n",
            "@n surprise\n",
            "@n done 1 0 5\n",
        ] {
            let mut parser = AnswerParser::new("n");
            parser.feed(line.as_bytes());
            parser.feed(b"............");
            assert!(parser.next_answer().is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn the_cut_of_the_stream_does_not_matter(cuts in proptest::collection::vec(0..STREAM.len(), 0..12)) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let mut parser = AnswerParser::new("n");
            let (mut answers, mut from) = (Vec::new(), 0);
            for cut in cuts.into_iter().chain([STREAM.len()]) {
                parser.feed(&STREAM[from..cut]);
                answers.extend(all(&mut parser));
                from = cut;
            }
            let mut whole = AnswerParser::new("n");
            whole.feed(STREAM);
            prop_assert_eq!(answers, all(&mut whole));
        }

        #[test]
        fn no_bytes_make_it_panic(data in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut parser = AnswerParser::new("n");
            parser.feed(b"@n ");
            parser.feed(&data);
            while let Ok(Some(_)) = parser.next_answer() {}
        }
    }
}
