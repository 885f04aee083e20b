//! `vibesys exec` on the real cluster: allocations, containers, and everything that can be refused.

use std::fs;
use std::io::Read;
use std::process::Command;
use std::time::Duration;

use crate::support::{Cluster, Ran, World, cluster};

macro_rules! on_cluster {
    () => {
        match cluster() {
            Some(cluster) => cluster,
            None => return,
        }
    };
}

/// The partition of whole nodes, as a real profile has it.
fn exclusive(cluster: &Cluster, environment: &str) -> World {
    let slurm = format!(
        "partition = \"mi300\"\naccount = \"csstaff\"\ngres = \"gpu:4\"\nenvironment = \"{environment}\""
    );
    World::on_cluster(cluster, &slurm, "exclusive = true\ncpus_per_node = 192\n")
}

fn job_name(world: &World) -> String {
    let leases = fs::read_dir(world.state().join("leases")).unwrap();
    let record = leases
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|e| e == "json"))
        .unwrap();
    let record: serde_json::Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    format!(
        "vibesys-{}-{}",
        record["lease"].as_str().unwrap(),
        record["sequence"]
    )
}

#[test]
fn two_edits_are_measured_in_a_container_on_one_allocation() {
    let cluster = on_cluster!();
    let world = exclusive(cluster, cluster.get("EDF_PLAIN"));
    for edit in ["first", "second"] {
        world.write("kernel.txt", edit);
        let ran = world.exec(
            &[],
            &[
                "sh",
                "-c",
                "pwd; cat kernel.txt; echo; echo $ROCR_VISIBLE_DEVICES",
            ],
        );
        ran.ends_with(0).says(&["COMPLETED", "sacct step COMPLETED"]);
        assert_eq!(ran.text(), format!("/workspace\n{edit}\n0,1,2,3\n"));
    }
    assert_eq!(cluster.jobs(&job_name(&world)).len(), 1, "one sbatch");
    let report = world.report(&["--gpus", "2"], &["true"]);
    assert_eq!(report["provenance"]["gpus"], "0,1");
    let list = world.vibesys(&["lease", "list", "--cluster-profile", "bed"]);
    assert!(list.text().contains("RUNNING"), "{}", list.text());
    let release = world.vibesys(&["lease", "release", "--cluster-profile", "bed"]);
    release.ends_with(0);
    assert_eq!(
        cluster.on("beverin", &format!("squeue -h -n {} -o %i", job_name(&world))),
        ""
    );
    assert!(
        world
            .vibesys(&["lease", "list", "--cluster-profile", "bed"])
            .stderr
            .contains("no allocation is held")
    );
}

#[test]
fn an_image_and_a_wrapper_are_containers_too() {
    let cluster = on_cluster!();
    let world = World::on_cluster(
        cluster,
        &format!(
            "partition = \"debug\"\nmemory = \"500\"\nenvironment = \"{}\"",
            cluster.get("EDF_IMAGE")
        ),
        "exclusive = false\ncpus_per_node = 4\n",
    );
    world.write("f", "inside");
    let ran = world.exec(&[], &["sh", "-c", "cat f; ls /vibesys/run; exit 9"]);
    ran.ends_with(9);
    assert_eq!(ran.text(), "inside/vibesys/run\n");
    // The same way as `apptainer exec`, by what the test machine has.
    let wrapper = r#"command_prefix = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/mnt", "--bind", "@WORKSPACE@", "/mnt/w", "--bind", "@STEP@", "/mnt/s", "sh", "-c", "shift 4; cd /mnt/w; exec /bin/sh /mnt/s/run /mnt/s /mnt/w \"$@\"", "sh"]"#;
    let world = World::on_cluster(
        cluster,
        "partition = \"debug\"\nmemory = \"500\"",
        &format!("exclusive = false\ncpus_per_node = 4\n{wrapper}\n"),
    );
    world.write("f", "wrapped");
    let ran = world.exec(&[], &["sh", "-c", "pwd; cat f"]);
    ran.ends_with(0);
    assert_eq!(ran.text(), "/mnt/w\nwrapped");
}

#[test]
fn a_container_that_cannot_start_is_not_the_applications_failure() {
    let cluster = on_cluster!();
    let world = World::on_cluster(
        cluster,
        &format!(
            "partition = \"debug\"\nmemory = \"500\"\nenvironment = \"{}\"",
            cluster.get("EDF_BROKEN")
        ),
        "exclusive = false\ncpus_per_node = 4\n",
    );
    world
        .exec(&[], &["true"])
        .ends_with(81)
        .says(&["NODE_FAILED: the command was never started"]);
    let missing = World::on_cluster(
        cluster,
        "partition = \"debug\"\nmemory = \"500\"\nenvironment = \"/no/such/environment.toml\"",
        "exclusive = false\ncpus_per_node = 4\n",
    );
    missing
        .exec(&[], &["true"])
        .ends_with(81)
        .says(&["NODE_FAILED", "/no/such/environment.toml"]);
}

#[test]
fn memory_that_runs_out_is_said_even_if_the_command_survives_it() {
    let cluster = on_cluster!();
    if cluster.get("CGROUPS") != "v1" {
        eprintln!("skipped: this machine cannot limit memory");
        return;
    }
    let world = World::on_cluster(
        cluster,
        "partition = \"debug\"\nmemory = \"200\"",
        "exclusive = false\ncpus_per_node = 2\n",
    );
    let eat = "bytearray(900000000)";
    world
        .exec(&[], &["python3", "-c", eat])
        .ends_with(137)
        .says(&["APPLICATION_FAILED: out of memory"]);
    let survived = format!("python3 -c '{eat}'; exit 0");
    let ran = world.exec(&[], &["sh", "-c", &survived]);
    ran.says(&["APPLICATION_FAILED: out of memory", "OUT_OF_MEMORY"]);
    assert_ne!(ran.code, 0);
}

#[test]
fn an_allocation_that_was_submitted_without_an_answer_is_adopted() {
    let cluster = on_cluster!();
    let world = World::shared(cluster);
    world.exec(&[], &["true"]).ends_with(0);
    let name = job_name(&world);
    // What a crash between sbatch and its answer leaves behind.
    let leases = fs::read_dir(world.state().join("leases")).unwrap();
    let path = leases
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|e| e == "json"))
        .unwrap();
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    record["phase"] = "submitting".into();
    record["job"] = serde_json::Value::Null;
    fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
    world.exec(&[], &["true"]).ends_with(0);
    assert_eq!(job_name(&world), name);
    assert_eq!(cluster.jobs(&name).len(), 1);
}

#[test]
fn an_allocation_that_is_gone_is_replaced() {
    let cluster = on_cluster!();
    let world = World::shared(cluster);
    world.exec(&[], &["true"]).ends_with(0);
    let first = job_name(&world);
    cluster.on("beverin", &format!("scancel -n {first}"));
    world
        .exec(&[], &["echo", "again"])
        .ends_with(0)
        .says(&["COMPLETED"]);
    assert_ne!(job_name(&world), first);
    // Killed without a word to its launcher.
    let second = job_name(&world);
    cluster.on(
        "beverin",
        &format!("scancel --signal=KILL --full -n {second}; sleep 1"),
    );
    world.exec(&[], &["echo", "again"]).ends_with(0);
    assert_ne!(job_name(&world), second);
}

#[test]
fn a_snapshot_that_was_purged_is_sent_again() {
    let cluster = on_cluster!();
    let mut world = World::shared(cluster);
    world.edit_profile("$SCRATCH/vibesys", "$SCRATCH/purged");
    world.write("f", "before");
    assert_eq!(world.exec(&[], &["cat", "f"]).text(), "before");
    cluster.on("beverin", "rm -rf $SCRATCH/purged/snapshots/*");
    assert_eq!(world.exec(&[], &["cat", "f"]).text(), "before");
    cluster.on("beverin", "rm -rf $SCRATCH/purged/snapshots/*");
    world.write("f", "after");
    assert_eq!(world.exec(&[], &["cat", "f"]).text(), "after");
    world.environment.clear();
}

#[test]
fn every_refusal_is_one_clear_error_and_leaves_nothing_behind() {
    let cluster = on_cluster!();
    let refused = |from: &str, to: &str, code: i32, words: &[&str]| {
        let world = World::shared(cluster);
        world.edit_profile(from, to);
        world
            .exec(&[], &["true"])
            .ends_with(code)
            .says(words)
            .says(&["error: ", "hint: "]);
        assert_eq!(
            cluster.on("beverin", &format!("squeue -h -n {} -o %i", job_name(&world))),
            ""
        );
    };
    refused("csstaff", "nosuch", 76, &["Invalid account", "slurm.account"]);
    refused("csstaff", "notmine", 76, &["Invalid account", "slurm.account"]);
    refused(
        "\"debug\"",
        "\"nosuch\"",
        76,
        &["Invalid partition", "slurm.partition"],
    );
    refused(
        "memory = \"500\"",
        "qos = \"nosuch\"",
        76,
        &["Invalid qos", "slurm.qos"],
    );
    refused(
        "memory = \"500\"",
        "gres = \"gpu:9\"",
        76,
        &["node configuration", "slurm.gres"],
    );
    // Accepted by Slurm, and waiting for ever.
    refused(
        "00:20:00",
        "09:00:00",
        76,
        &["would never start", "PartitionTimeLimit", "allocation_time"],
    );
    let world = World::shared(cluster);
    world.edit_profile("accelerator_type", "acelerator_type");
    world
        .exec(&[], &["true"])
        .ends_with(78)
        .says(&["clusters.toml:4:1", "did you mean `accelerator_type`?"]);
    world.exec(&["--nodes", "9"], &["true"]).ends_with(78);
    let world = World::shared(cluster);
    world
        .exec(&["--nodes", "9"], &["true"])
        .ends_with(78)
        .says(&["at most 3 nodes (max_nodes)", "9 (--nodes)"]);
    world
        .exec(&["--gpus", "5"], &["true"])
        .ends_with(78)
        .says(&["at most 4 accelerators", "5 (--gpus)"]);
    world.edit_profile("$SCRATCH/vibesys", "$NO_SUCH_VARIABLE/vibesys");
    world
        .exec(&[], &["true"])
        .ends_with(78)
        .says(&["$NO_SUCH_VARIABLE is not set", "remote_artifact_root"]);
    assert!(!world.state().join("leases").exists(), "nothing was submitted");
}

#[test]
fn every_bad_certificate_and_host_key_is_named() {
    let cluster = on_cluster!();
    let with = |variant: &str| {
        let mut world = World::shared(cluster);
        world.ssh_config = Some(format!("{}.{variant}", cluster.get("SSH_CONFIG")));
        world
    };
    for good in ["rsa", "ecdsa", "known-ca", "known-plain", "known-hashed"] {
        with(good).exec(&[], &["true"]).ends_with(0);
    }
    for (variant, words) in [
        ("expired", &["expired", "make a new certificate"][..]),
        ("notyet", &["not valid before"]),
        ("wrongprincipal", &["operator"]),
        ("unknownca", &["refused"]),
        ("revoked", &["refused"]),
        ("unsigned", &["refused"]),
        ("sourceaddress", &["192.0.2.0/24"]),
        ("hop2-expired", &["beverin", "expired"]),
        ("known-empty", &["no key of ela is known", "SHA256:"]),
        ("known-otherca", &["ela", "SHA256:"]),
        (
            "known-changed-ela",
            &[
                "the host key of ela has changed",
                "SHA256:",
                "known_hosts.changed-ela:",
            ],
        ),
        (
            "known-changed-beverin",
            &[
                "the host key of beverin has changed",
                "known_hosts.changed-beverin:",
            ],
        ),
        ("known-revoked-ela", &["@revoked"]),
        ("known-revoked-beverin", &["@revoked"]),
    ] {
        let world = with(variant);
        let ran = world.exec(&["-vvv"], &["true"]);
        ran.ends_with(77)
            .says(&["error: cannot reach beverin", "hint: "])
            .says(words);
        assert!(
            !world.state().join("leases").exists(),
            "{variant}: nothing was submitted"
        );
        no_key_material(cluster, &world, &ran.stderr);
    }
    let encrypted = with("encrypted").exec(&[], &["true"]);
    encrypted.ends_with(77).says(&["error: ", "hint: "]);
    with("noforward")
        .exec(&[], &["true"])
        .ends_with(77)
        .says(&["permit-port-forwarding"]);
    let forced = with("hop2-forcecommand").exec(&[], &["true"]);
    assert_ne!(forced.code, 0);
}

/// The middle of every private key of the bed, as it stands in its file.
fn no_key_material(cluster: &Cluster, world: &World, said: &str) {
    for entry in fs::read_dir(cluster.get("SSH_DIR")).unwrap() {
        let Ok(text) = fs::read_to_string(entry.unwrap().path()) else {
            continue;
        };
        if !text.contains("PRIVATE KEY") {
            continue;
        }
        let line = text.lines().nth(3).unwrap();
        assert!(!said.contains(line), "a private key was printed");
        for (path, content) in world.records() {
            assert!(
                !String::from_utf8_lossy(&content).contains(line),
                "{} has a private key",
                path.display()
            );
        }
    }
}

#[test]
fn a_host_that_is_not_there_is_unreachable() {
    let mut world = World::shared(on_cluster!());
    let config = world.path("ssh_config");
    fs::write(&config, "Host beverin\n HostName 127.0.0.1\n Port 1\n").unwrap();
    let mode = Command::new("chmod").arg("600").arg(&config).status().unwrap();
    assert!(mode.success());
    world.ssh_config = Some(config.to_str().unwrap().to_owned());
    world
        .exec(&[], &["true"])
        .ends_with(69)
        .says(&["cannot reach beverin", "refused"]);
}

#[test]
fn a_full_scratch_is_one_clear_error_and_free_again_all_is_well() {
    // A cluster of its own: the others' scratch would be full too.
    let Some(cluster) = Cluster::start("full") else {
        return;
    };
    {
        let world = World::shared(&cluster);
        world.exec(&[], &["true"]).ends_with(0);
        let noise =
            (0..1_000_000_u64).flat_map(|i| (i.wrapping_mul(6_364_136_223_846_793_005) >> 33).to_le_bytes());
        world.write("model", noise.collect::<Vec<u8>>());
        for (kind, kept) in [("space", "1024"), ("inodes", "--inodes")] {
            cluster.fault(&["fill-scratch", kept]);
            let ran = world.exec(&[], &["true"]);
            ran.ends_with(73).says(&[
                "error: the cluster's storage is full",
                "hint: ",
                "remote_artifact_root",
            ]);
            cluster.fault(&["free-scratch"]);
            let ran = world.exec(&[], &["sh", "-c", "wc -c < model"]);
            ran.ends_with(0);
            assert_eq!(ran.text(), "8000000\n", "{kind}");
            world.write("model", vec![b'x'; 8_000_000]);
        }
    }
    cluster.end();
}

#[test]
fn a_connection_that_is_lost_costs_time_and_nothing_else() {
    // A cluster of its own: everybody's connections are cut.
    let Some(cluster) = Cluster::start("lost") else {
        return;
    };
    {
        let world = World::shared(&cluster);
        cluster.on("beverin", "rm -f $HOME/ran");
        let script = "echo first; sleep 6; echo last; echo once >> $HOME/ran; exit 5";
        let arguments = world.exec_arguments(&["--artifact", "absent"], &["sh", "-c", script]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut child = world.command(&arguments).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut first = [0; 6];
        stdout.read_exact(&mut first).unwrap();
        cluster.fault(&["kill", "sshd-beverin"]);
        std::thread::sleep(Duration::from_secs(2));
        cluster.fault(&["restart", "sshd-beverin"]);
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        let ran = Ran::of(child.wait_with_output().unwrap());
        ran.ends_with(5).says(&[
            "APPLICATION_FAILED: exit code 5",
            "again (the connection was lost)",
        ]);
        assert_eq!(rest, "last\n", "to the byte, and once");
        assert_eq!(cluster.on("beverin", "cat $HOME/ran"), "once\n");
    }
    cluster.end();
}
