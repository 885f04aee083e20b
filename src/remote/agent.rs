//! The client's end of the agent: sends requests in batches, hands each answer to whom it belongs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::answer::{Answer, AnswerParser, Stream};
use crate::quote;
use crate::ssh::transport::{ChannelReader, ChannelWriter, Event, OpenError, Transport};

const SCRIPT: &str = include_str!("../../slurm-templates/agent.sh");
/// The login shell reads these fixed words, so that no login shell's quoting rules matter (csh, tcsh and fish included).
const COMMAND: &str = "exec bash --noprofile --norc -s";
/// How long a login node may take to start a shell; a slow rc file is seconds, not minutes.
const HELLO_LIMIT: Duration = Duration::from_secs(60);
/// Followed output that waits for its reader; each piece is at most 1 MiB, and the reader only writes to a local file.
const FOLLOW_QUEUE: usize = 16;

/// Why the agent did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No channel, or no answer to the request for one.
    #[error("cannot start a shell on the login node")]
    Open(#[from] OpenError),
    /// The remote root is not to be had.
    #[error("the login node has no usable artifact root: {words}")]
    Root {
        /// What the remote side said.
        words: String,
    },
    /// The shell ended or stayed silent before it said hello.
    #[error("the login shell did not start the agent: {reason}")]
    NoHello {
        /// How it ended, with what it printed.
        reason: String,
    },
    /// No randomness for the marker.
    #[error("cannot make a marker for the remote shell")]
    Random(#[from] getrandom::Error),
}

/// The agent is gone: its connection, or the remote shell itself. What was asked of it and not answered may have happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the connection to the login node was lost: {reason}")]
pub struct AgentError {
    /// How it ended.
    pub reason: String,
}

/// Who and where the agent is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The account.
    pub user: String,
    /// Its user id.
    pub uid: u32,
    /// The login node.
    pub host: String,
    /// The remote root, absolute.
    pub root: String,
}

/// What a remote function did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Its exit code.
    pub code: u8,
    /// Its standard output.
    pub stdout: Bytes,
    /// Its standard error.
    pub stderr: Bytes,
}

impl Done {
    /// Its standard output as text; Slurm's output may have bytes that are not UTF-8 (user comments).
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Its standard error as text, trimmed.
    pub fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }
}

/// An answer that is still to come.
#[derive(Debug)]
pub struct Pending<T>(oneshot::Receiver<T>, Arc<Shared>);

impl<T> Pending<T> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The agent is gone; whether the request was carried out is not known.
    pub async fn answer(self) -> Result<T, AgentError> {
        self.0.await.map_err(|_| self.1.lost())
    }
}

/// What is heard of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowEvent {
    /// The launcher's state line.
    State(String),
    /// A line of the attempt's events or of its step.
    Line {
        /// Whether the step itself wrote it (then it is the word of the command's side, not of the launcher).
        by_step: bool,
        /// The line.
        words: String,
    },
    /// New output.
    Data {
        /// Which stream.
        stream: Stream,
        /// Where it begins.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// The end; nothing follows.
    End {
        /// `result.json`, empty if the request was refused.
        result: Bytes,
        /// The last words of srun or of the unpacking.
        said: Bytes,
    },
}

/// The stream of events of one attempt.
#[derive(Debug)]
pub struct Follow {
    events: mpsc::Receiver<FollowEvent>,
    shared: Arc<Shared>,
}

impl Follow {
    /// The next event. Cancel-safe.
    ///
    /// # Errors
    /// The agent is gone; the attempt goes on without us.
    pub async fn next(&mut self) -> Result<FollowEvent, AgentError> {
        self.events.recv().await.ok_or_else(|| self.shared.lost())
    }
}

#[derive(Debug, Default)]
struct Waiters {
    next_id: u64,
    done: HashMap<u64, oneshot::Sender<Done>>,
    bytes: HashMap<u64, oneshot::Sender<Bytes>>,
    follows: HashMap<String, mpsc::Sender<FollowEvent>>,
    lost: Option<String>,
}

#[derive(Debug, Default)]
struct Shared(Mutex<Waiters>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiters> {
        // A panic elsewhere leaves the maps as whole as they were.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) -> AgentError {
        let reason = self.lock().lost.clone();
        AgentError {
            reason: reason.unwrap_or_else(|| "the answer never came".to_owned()),
        }
    }

    fn end(&self, reason: String) {
        let mut waiters = self.lock();
        waiters.lost.get_or_insert(reason);
        // Dropping the senders is what tells everybody who waits.
        waiters.done.clear();
        waiters.bytes.clear();
        waiters.follows.clear();
    }
}

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    login: Login,
    writer: tokio::sync::Mutex<ChannelWriter>,
    shared: Arc<Shared>,
    reader: JoinHandle<()>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Agent {
    /// Starts the agent. `root` is absolute or begins with a variable of the login environment; `scheduler` is
    /// `slurm` or `local`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(transport: &dyn Transport, root: &str, scheduler: &str) -> Result<Self, StartError> {
        let nonce = crate::ids::random_hex(8)?;
        let header = format!(
            "nonce={nonce}\nroot={}\nscheduler={scheduler}\n",
            quote::sh(root).map_err(|error| StartError::Root {
                words: error.to_string()
            })?
        );
        let channel = transport.open(COMMAND).await?;
        let (mut writer, mut reader) = (channel.writer, channel.reader);
        let lost = |reason: String| StartError::NoHello { reason };
        writer
            .write(Bytes::from(header + SCRIPT))
            .await
            .map_err(|error| lost(error.to_string()))?;
        let mut parser = AnswerParser::new(&nonce);
        let hello = tokio::time::timeout(HELLO_LIMIT, first_answer(&mut reader, &mut parser)).await;
        let login = match hello {
            Err(_) => {
                return Err(lost(format!(
                    "no answer in {} s; it printed: {}",
                    HELLO_LIMIT.as_secs(),
                    parser.noise().trim()
                )));
            }
            Ok(Err(reason)) => return Err(lost(reason)),
            Ok(Ok(Answer::Hello {
                user,
                uid,
                host,
                root,
            })) => Login {
                user,
                uid,
                host,
                root,
            },
            Ok(Ok(Answer::Refused { words })) => return Err(StartError::Root { words }),
            Ok(Ok(other)) => return Err(lost(format!("it answered {other:?} first"))),
        };
        let shared = Arc::new(Shared::default());
        let reader = tokio::spawn(read(reader, parser, Arc::clone(&shared)));
        Ok(Self {
            login,
            writer: tokio::sync::Mutex::new(writer),
            shared,
            reader,
        })
    }

    /// Who and where it is.
    pub fn login(&self) -> &Login {
        &self.login
    }

    /// Whether the agent is gone.
    pub fn is_lost(&self) -> bool {
        self.shared.lock().lost.is_some()
    }

    /// Begins a batch: requests that travel together and are carried out in their order.
    pub fn batch(&self) -> Batch {
        Batch {
            bytes: BytesMut::new(),
            shared: Arc::clone(&self.shared),
        }
    }

    /// Sends a batch; returns when it is handed over, not when it is answered.
    ///
    /// # Errors
    /// The agent is gone; a part of the batch may have been carried out.
    pub async fn send(&self, batch: Batch) -> Result<(), AgentError> {
        let sent = self.writer.lock().await.write(batch.bytes.freeze()).await;
        sent.map_err(|error| {
            self.shared.end(error.to_string());
            self.shared.lost()
        })
    }

    /// Calls one remote function and waits for it.
    ///
    /// # Errors
    /// The agent is gone; whether the function ran is not known.
    pub async fn run(&self, script: &str) -> Result<Done, AgentError> {
        let mut batch = self.batch();
        let done = batch.run(script);
        self.send(batch).await?;
        done.answer().await
    }
}

/// Requests that travel together.
#[derive(Debug)]
pub struct Batch {
    bytes: BytesMut,
    shared: Arc<Shared>,
}

impl Batch {
    fn expect_done(&self) -> (u64, Pending<Done>) {
        let (sender, receiver) = oneshot::channel();
        let mut waiters = self.shared.lock();
        waiters.next_id += 1;
        let id = waiters.next_id;
        if waiters.lost.is_none() {
            waiters.done.insert(id, sender);
        }
        drop(waiters);
        (id, Pending(receiver, Arc::clone(&self.shared)))
    }

    fn line(&mut self, line: &str, payload: &[u8]) {
        self.bytes.extend_from_slice(line.as_bytes());
        self.bytes.extend_from_slice(b"\n");
        self.bytes.extend_from_slice(payload);
    }

    /// A call of a function of the script; see [`call`].
    pub fn run(&mut self, script: &str) -> Pending<Done> {
        let (id, pending) = self.expect_done();
        self.line(&format!("run {id} {}", script.len()), script.as_bytes());
        pending
    }

    /// `data` becomes the part of `incoming/FILE` at `offset`.
    pub fn put(&mut self, file: &str, offset: u64, data: &[u8]) -> Pending<Done> {
        let (id, pending) = self.expect_done();
        self.line(&format!("put {id} {file} {offset} {}", data.len()), data);
        pending
    }

    /// The tar `archive` becomes the new directory `incoming/DIRECTORY`.
    pub fn unpack(&mut self, directory: &str, archive: &[u8]) -> Pending<Done> {
        let (id, pending) = self.expect_done();
        self.line(&format!("unpack {id} {directory} {}", archive.len()), archive);
        pending
    }

    /// A part of an artifact; the answer is empty if it is not there (any more).
    pub fn fetch(
        &mut self,
        generation: &str,
        name: &str,
        path: &str,
        offset: u64,
        length: u64,
    ) -> Pending<Bytes> {
        let (sender, receiver) = oneshot::channel();
        let mut waiters = self.shared.lock();
        waiters.next_id += 1;
        let id = waiters.next_id;
        if waiters.lost.is_none() {
            waiters.bytes.insert(id, sender);
        }
        drop(waiters);
        // The path travels as payload: it may hold anything but NUL.
        self.line(
            &format!("fetch {id} {generation} {name} {} {offset} {length}", path.len()),
            path.as_bytes(),
        );
        Pending(receiver, Arc::clone(&self.shared))
    }

    /// Reports the attempt until its end, from these offsets on.
    pub fn follow(&mut self, generation: &str, name: &str, events: u64, stdout: u64, stderr: u64) -> Follow {
        let (sender, receiver) = mpsc::channel(FOLLOW_QUEUE);
        let mut waiters = self.shared.lock();
        if waiters.lost.is_none() {
            waiters.follows.insert(name.to_owned(), sender);
        }
        drop(waiters);
        self.line(
            &format!("follow {generation} {name} {events} {stdout} {stderr}"),
            b"",
        );
        Follow {
            events: receiver,
            shared: Arc::clone(&self.shared),
        }
    }

    /// No more reports of the attempt.
    pub fn unfollow(&mut self, name: &str) {
        self.shared.lock().follows.remove(name);
        self.line(&format!("unfollow {name}"), b"");
    }
}

/// The text of a call: a function of the script and its arguments, each one shell word whatever it holds.
///
/// # Errors
/// A NUL byte in an argument.
pub fn call<S: AsRef<str>>(function: &str, arguments: &[S]) -> Result<String, quote::NulByte> {
    let mut text = function.to_owned();
    for argument in arguments {
        text.push(' ');
        text.push_str(&quote::sh(argument.as_ref())?);
    }
    Ok(text)
}

async fn first_answer(reader: &mut ChannelReader, parser: &mut AnswerParser) -> Result<Answer, String> {
    let mut complaints = String::new();
    loop {
        if let Some(answer) = parser.next_answer().map_err(|error| error.to_string())? {
            return Ok(answer);
        }
        match reader.next().await {
            Some(Event::Stdout(data)) => parser.feed(&data),
            Some(Event::Stderr(data)) => complaints.push_str(&String::from_utf8_lossy(&data)),
            Some(Event::Exit(exit)) => {
                return Err(format!(
                    "it ended ({exit}); it printed: {}{}",
                    parser.noise(),
                    complaints.trim()
                ));
            }
            None => return Err("it ended".to_owned()),
        }
    }
}

async fn read(mut reader: ChannelReader, mut parser: AnswerParser, shared: Arc<Shared>) {
    let reason = loop {
        match parser.next_answer() {
            Err(error) => break error.to_string(),
            Ok(Some(answer)) => {
                deliver(answer, &shared).await;
                continue;
            }
            Ok(None) => {}
        }
        match reader.next().await {
            Some(Event::Stdout(data)) => parser.feed(&data),
            Some(Event::Stderr(data)) => {
                tracing::debug!(said = %String::from_utf8_lossy(&data).trim(), "the remote shell complains");
            }
            Some(Event::Exit(exit)) => break format!("the remote shell ended: {exit}"),
            None => break "the channel was closed".to_owned(),
        }
    };
    shared.end(reason);
}

async fn deliver(answer: Answer, shared: &Shared) {
    let (name, event, last) = match answer {
        Answer::Done {
            id,
            code,
            stdout,
            stderr,
        } => {
            let waiter = shared.lock().done.remove(&id);
            if let Some(waiter) = waiter {
                // Nobody may be waiting any more.
                drop(waiter.send(Done { code, stdout, stderr }));
            }
            return;
        }
        Answer::Bytes { id, data } => {
            let waiter = shared.lock().bytes.remove(&id);
            if let Some(waiter) = waiter {
                drop(waiter.send(data));
            }
            return;
        }
        Answer::Hello { .. } | Answer::Refused { .. } => return,
        Answer::State { name, words } => (name, FollowEvent::State(words), false),
        Answer::Event { name, file, words } => (
            name,
            FollowEvent::Line {
                by_step: file != "events",
                words,
            },
            false,
        ),
        Answer::Data {
            name,
            stream,
            offset,
            data,
        } => (name, FollowEvent::Data { stream, offset, data }, false),
        Answer::End { name, result, said } => (name, FollowEvent::End { result, said }, true),
    };
    let sender = {
        let mut waiters = shared.lock();
        if last {
            waiters.follows.remove(&name)
        } else {
            waiters.follows.get(&name).cloned()
        }
    };
    if let Some(sender) = sender {
        drop(sender.send(event).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::local::LocalTransport;

    async fn agent(root: &std::path::Path) -> Agent {
        Agent::start(&LocalTransport::new(), root.to_str().unwrap(), "local")
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn functions_answer_with_code_and_both_streams() {
        let root = tempfile::tempdir().unwrap();
        let agent = agent(root.path()).await;
        assert_eq!(agent.login().root, root.path().to_str().unwrap());
        let done = agent.run("printf 'a\\n\\n'; echo b >&2; (exit 7)").await.unwrap();
        assert_eq!(
            (done.code, &done.stdout[..], &done.stderr[..]),
            (7, &b"a\n\n"[..], &b"b\n"[..])
        );
        let done = agent
            .run(&call("printf", &["%s", "it's; $(odd) \n`x`"]).unwrap())
            .await
            .unwrap();
        assert_eq!(&done.stdout[..], b"it's; $(odd) \n`x`");
    }

    #[tokio::test]
    async fn a_payload_with_any_bytes_arrives_whole_and_a_failed_one_does_not_upset_the_next_request() {
        let root = tempfile::tempdir().unwrap();
        let agent = agent(root.path()).await;
        let data: Vec<u8> = (0..=255_u8).cycle().take(3_000_000).collect();
        let mut batch = agent.batch();
        let first = batch.put("file", 0, &data[..2_000_000]);
        let refused = batch.put("no/such/place", 0, &data);
        let second = batch.put("file", 2_000_000, &data[2_000_000..]);
        let last = batch.run("true");
        agent.send(batch).await.unwrap();
        assert_eq!(first.answer().await.unwrap().code, 0);
        let refused = refused.answer().await.unwrap();
        assert_ne!(refused.code, 0);
        assert!(refused.complaint().contains("no/such/place"), "{refused:?}");
        assert_eq!(second.answer().await.unwrap().code, 0);
        assert_eq!(last.answer().await.unwrap().code, 0);
        assert!(std::fs::read(root.path().join("incoming/file")).unwrap() == data);
    }

    #[tokio::test]
    async fn a_root_variable_that_is_not_set_is_named() {
        let error = Agent::start(&LocalTransport::new(), "$VIBESYS_NO_SUCH_VARIABLE/x", "local")
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("$VIBESYS_NO_SUCH_VARIABLE is not set"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn following_what_is_not_there_upsets_nothing() {
        let root = tempfile::tempdir().unwrap();
        let agent = agent(root.path()).await;
        let mut batch = agent.batch();
        let _follow = batch.follow("leases/x/1", "n", 0, 0, 0);
        agent.send(batch).await.unwrap();
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(30)).await;
            assert_eq!(agent.run("true").await.unwrap().code, 0);
        }
    }

    #[tokio::test]
    async fn an_agent_that_dies_tells_everybody_who_waits() {
        let root = tempfile::tempdir().unwrap();
        let agent = agent(root.path()).await;
        let mut batch = agent.batch();
        let killed = batch.run("kill -9 $$");
        let never = batch.run("true");
        let mut follow = batch.follow("leases/x/1", "n", 0, 0, 0);
        agent.send(batch).await.unwrap();
        assert!(killed.answer().await.is_err());
        assert!(never.answer().await.is_err());
        assert!(follow.next().await.is_err());
        assert!(agent.is_lost());
    }
}
