//! What every runner does alike: the same tests on this machine and on the real cluster.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::support::{Cluster, Ran, World, cluster};

/// Runs the test in both worlds. The second is left out where there is no cluster (never under CI).
fn everywhere(test: impl Fn(&World)) {
    test(&World::local());
    if let Some(cluster) = cluster() {
        test(&World::shared(cluster));
    }
}

#[test]
fn each_edit_is_measured_as_it_is() {
    everywhere(|world| {
        for edit in ["one", "two"] {
            world.write("answer", edit);
            let ran = world.exec(&[], &["cat", "answer"]);
            ran.ends_with(0).says(&["COMPLETED: exit code 0", "evidence:"]);
            assert_eq!(ran.text(), edit);
        }
    });
}

#[test]
fn an_edit_is_newer_than_what_was_built_before_it() {
    everywhere(|world| {
        // A build directory that outlives the tree, as torch's extensions or a CMake cache on scratch do.
        let script = "d=${SCRATCH:-/tmp}/$1; mkdir -p $d; [ $d/product -nt source ] || cat source > $d/product; cat $d/product";
        let place = format!("vibesys-build-{}", vibesys::ids::random_hex(6).unwrap());
        for edit in ["one", "two", "three"] {
            world.write("source", edit);
            let ran = world.exec(&[], &["bash", "-lc", script, "sh", &place]);
            ran.ends_with(0);
            assert_eq!(ran.text(), edit, "the product of another candidate was measured");
        }
        world
            .exec(&[], &["bash", "-lc", "rm -rf ${SCRATCH:-/tmp}/$1", "sh", &place])
            .ends_with(0);
    });
}

#[test]
fn the_command_gets_its_words_and_variables_as_they_are() {
    everywhere(|world| {
        let odd = "a b;$(id) 'q' \"d\" \\ * \n~ -x";
        let script = "printf '<%s>' \"$@\" \"$ODD\" \"$PASSED\"";
        let arguments = [&format!("--env=ODD={odd}"), "--env=PASSED"];
        let mut world_with = World::local();
        let world = if world.ssh_config.is_some() {
            world
        } else {
            world_with.environment.push(("PASSED", "from here".to_owned()));
            &world_with
        };
        let passed = if world.ssh_config.is_some() {
            "--env=PASSED=from here"
        } else {
            arguments[1]
        };
        let ran = world.exec(&[arguments[0], passed], &["sh", "-c", script, "sh", odd, ""]);
        ran.ends_with(0);
        assert_eq!(ran.text(), format!("<{odd}><><{odd}><from here>"));
    });
}

#[test]
fn the_commands_own_code_comes_through() {
    everywhere(|world| {
        world
            .exec(&[], &["sh", "-c", "exit 7"])
            .ends_with(7)
            .says(&["APPLICATION_FAILED: exit code 7"]);
        world
            .exec(&[], &["sh", "-c", "exit 255"])
            .ends_with(255)
            .says(&["exit code 255"]);
        world
            .exec(&[], &["sh", "-c", "exit 137"])
            .ends_with(137)
            .says(&["exit code 137"]);
        world
            .exec(&[], &["sh", "-c", "kill -9 $$"])
            .ends_with(137)
            .says(&["killed by signal 9"]);
        world
            .exec(&[], &["sh", "-c", "kill -SEGV $$"])
            .ends_with(139)
            .says(&["killed by signal 11"]);
        world
            .exec(&[], &["no-such-command"])
            .ends_with(127)
            .says(&["the command does not exist on the node"]);
        world
            .exec(&[], &["/etc/passwd"])
            .ends_with(126)
            .says(&["cannot be executed"]);
        // A command that ends with 127 by itself is not one that is missing.
        world
            .exec(&[], &["sh", "-c", "exit 127"])
            .ends_with(127)
            .says(&["exit code 127"]);
    });
}

#[test]
fn both_streams_arrive_apart_and_to_the_byte() {
    everywhere(|world| {
        let script = r#"import sys
out = bytes(range(256)) * 9000
sys.stdout.buffer.write(out); sys.stdout.flush()
sys.stderr.buffer.write(b"e\0\xff no newline")
"#;
        world.write("out.py", script);
        let ran = Ran::of(
            world
                .command(
                    &world
                        .exec_arguments(&["--quiet"], &["python3", "out.py"])
                        .iter()
                        .map(String::as_str)
                        .collect::<Vec<_>>(),
                )
                .output()
                .unwrap(),
        );
        ran.ends_with(0);
        let expected: Vec<u8> = (0..=255).cycle().take(256 * 9000).collect();
        assert!(ran.stdout == expected, "{} bytes came", ran.stdout.len());
        let stderr: Vec<_> = world
            .records()
            .into_iter()
            .filter(|(path, _)| path.ends_with("stderr"))
            .collect();
        assert!(stderr.iter().any(|(_, content)| content == b"e\0\xff no newline"));
    });
}

#[test]
fn output_shows_while_the_command_runs() {
    everywhere(|world| {
        let arguments = world.exec_arguments(&["--quiet"], &["sh", "-c", "echo first; sleep 4; echo last"]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut child = world.command(&arguments).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut first = [0; 6];
        stdout.read_exact(&mut first).unwrap();
        let seen = Instant::now();
        assert_eq!(&first, b"first\n");
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "last\n");
        assert!(
            seen.elapsed() > Duration::from_secs(2),
            "the first line came only with the last"
        );
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn artifacts_come_back_checked_and_links_do_not() {
    everywhere(|world| {
        let script = "mkdir -p out/deep; head -c 3000000 /dev/urandom > out/big; printf x > 'out/deep/a b'; \
                      ln -s /etc/passwd out/link; ln -s /etc linked; sha256sum < out/big";
        let options = [
            "--artifact",
            "out",
            "--artifact",
            "linked/passwd",
            "--artifact",
            "absent",
        ];
        let ran = world.exec(&options, &["sh", "-c", script]);
        ran.ends_with(84).says(&[
            "COMPLETED",
            "artifact missing: linked/passwd",
            "artifact missing: absent",
        ]);
        let home = world.path("candidate");
        let big = fs::read(home.join("out/big")).unwrap();
        let digest = vibesys::ids::hex(&Sha256::digest(&big));
        assert!(ran.text().starts_with(&digest), "{}", ran.text());
        assert_eq!(fs::read(home.join("out/deep/a b")).unwrap(), b"x");
        assert!(!home.join("out/link").exists() && !home.join("linked").exists());
        world
            .exec(&["--artifact", "../x"], &["true"])
            .ends_with(78)
            .says(&["--artifact", "../x"]);
    });
}

#[test]
fn an_artifact_never_leaves_its_target() {
    let world = World::local();
    let outside = world.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir(world.path("target")).unwrap();
    symlink(&outside, world.path("target/out")).unwrap();
    let target = world.path("target");
    let options = ["--artifact", "out/x", "--artifact-dir", target.to_str().unwrap()];
    world
        .exec(&options, &["sh", "-c", "mkdir out; echo 1 > out/x"])
        .ends_with(74)
        .says(&["out/x"]);
    assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
}

#[test]
fn a_time_limit_ends_the_command_and_all_it_started() {
    everywhere(|world| {
        let begun = Instant::now();
        let ran = world.exec(&["--timeout", "2s"], &["sh", "-c", "sleep 300 & sleep 300"]);
        ran.ends_with(124)
            .says(&["APPLICATION_FAILED: the invocation's own time limit"]);
        assert!(begun.elapsed() < Duration::from_secs(20));
        // One that does not listen is ended by force.
        let ran = world.exec(
            &["--timeout", "1s"],
            &["sh", "-c", "trap '' TERM; echo on; while :; do sleep 1; done"],
        );
        ran.ends_with(124).says(&["own time limit"]);
        assert_eq!(ran.text(), "on\n");
        world
            .exec(&["--timeout", "30"], &["true"])
            .ends_with(78)
            .says(&["--timeout", "`30m`"]);
    });
}

#[test]
fn an_interrupt_cancels_the_step_and_keeps_the_allocation() {
    everywhere(|world| {
        let arguments = world.exec_arguments(&[], &["sh", "-c", "echo on; exec sleep 300"]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut child = world.command(&arguments).spawn().unwrap();
        let mut on = [0; 3];
        child.stdout.take().unwrap().read_exact(&mut on).unwrap();
        interrupt(child.id());
        let ran = Ran::of(child.wait_with_output().unwrap());
        ran.ends_with(130)
            .says(&["cancelling the step", "CANCELLED: cancelled on request"]);
        world.exec(&[], &["true"]).ends_with(0);
    });
}

#[test]
fn a_second_interrupt_says_what_is_left_behind() {
    everywhere(|world| {
        let arguments = world.exec_arguments(
            &[],
            &["sh", "-c", "trap '' TERM; echo on; while :; do sleep 1; done"],
        );
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut child = world.command(&arguments).spawn().unwrap();
        let mut on = [0; 3];
        child.stdout.take().unwrap().read_exact(&mut on).unwrap();
        interrupt(child.id());
        std::thread::sleep(Duration::from_millis(500));
        interrupt(child.id());
        let ran = Ran::of(child.wait_with_output().unwrap());
        ran.ends_with(130).says(&["left behind", "vibesys lease release"]);
    });
}

fn interrupt(process: u32) {
    let done = std::process::Command::new("kill")
        .args(["-INT", &process.to_string()])
        .status()
        .unwrap();
    assert!(done.success());
}

#[test]
fn a_reader_that_goes_away_does_not_hold_up_the_command() {
    everywhere(|world| {
        let script = "head -c 5000000 /dev/zero; echo done > marker";
        let arguments = world.exec_arguments(&["--artifact", "marker"], &["sh", "-c", script]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut child = world.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ran = Ran::of(child.wait_with_output().unwrap());
        ran.ends_with(0).says(&["COMPLETED"]);
        assert_eq!(fs::read(world.path("candidate/marker")).unwrap(), b"done\n");
    });
}

#[test]
fn several_evaluations_run_side_by_side_in_one_allocation() {
    everywhere(|world| {
        world.exec(&[], &["true"]).ends_with(0);
        let children: Vec<_> = (0..4)
            .map(|number| {
                let arguments = world.exec_arguments(
                    &["--quiet"],
                    &["sh", "-c", &format!("sleep 1; echo {number} > f; cat f")],
                );
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                world.command(&arguments).spawn().unwrap()
            })
            .collect();
        for (number, child) in children.into_iter().enumerate() {
            let ran = Ran::of(child.wait_with_output().unwrap());
            ran.ends_with(0);
            assert_eq!(ran.text(), format!("{number}\n"));
        }
        assert_eq!(
            fs::read_dir(world.state().join("leases")).unwrap().count(),
            2,
            "one record and its lock"
        );
    });
}

#[test]
fn a_report_has_the_evidence_and_where_it_was_measured() {
    everywhere(|world| {
        world.write("f", "x");
        let report = world.report(&[], &["sh", "-c", "exit 3"]);
        assert_eq!(report["verdict"]["outcome"], "APPLICATION_FAILED");
        assert_eq!(report["evidence"]["result"]["exit"], 3);
        assert_eq!(report["provenance"]["snapshot"].as_str().unwrap().len(), 64);
        assert!(report["provenance"]["node"].is_string() && report["provenance"]["cpus"].is_string());
        if world.ssh_config.is_some() {
            assert_eq!(report["evidence"]["step"]["state"], "FAILED");
            assert_eq!(report["evidence"]["step"]["exit"]["code"], 3);
            assert!(report["evidence"]["allocation"].is_object());
        }
    });
}

#[test]
fn a_secret_of_the_environment_is_nowhere_but_in_the_command() {
    everywhere(|world| {
        let secret = "correct-horse-battery";
        let option = format!("--env=TOKEN={secret}");
        let ran = world.exec(
            &[&option, "-vvv"],
            &[
                "sh",
                "-c",
                "test ${#TOKEN} -eq 21; ls -la ../step 2>/dev/null; true",
            ],
        );
        ran.ends_with(0);
        assert!(!ran.stderr.contains(secret), "{}", ran.stderr);
        for (path, content) in world.records() {
            let found = content
                .windows(secret.len())
                .any(|window| window == secret.as_bytes());
            assert!(!found, "{} has the secret", path.display());
        }
        if let (Some(cluster), true) = (cluster(), world.ssh_config.is_some()) {
            let left = remote_grep(cluster, secret);
            assert_eq!(left, "", "the cluster keeps the secret");
        }
    });
}

fn remote_grep(cluster: &Cluster, secret: &str) -> String {
    cluster.on("beverin", &format!("grep -rlF {secret} $SCRATCH/vibesys || true"))
}
