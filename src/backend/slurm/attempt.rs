//! One evaluation: sent, followed to its end, classified, collected; taken up again when the connection is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::allocate::{self, checked_call, codes};
use super::session::{Session, lost};
use super::spool::Spool;
use super::stage::{self, Known, PackedDelta};
use super::{SlurmRunner, Stopwatch, blocking, collect, internal, local_storage, request};
use crate::job::{Cause, Outcome, Verdict};
use crate::journal::{JournalError, Record};
use crate::lease::LeaseRecord;
use crate::remote::{AgentError, Done, Follow, FollowEvent, Pending, Stream};
use crate::runner::{EvaluationRequest, FailureKind, Observer, Phase, Provenance, Report, RunError};
use crate::slurm::sacct::{Wanted, witnesses};
use crate::slurm::state::Phase as JobPhase;
use crate::slurm::{Decision, Evidence, QueueRow, Scheduler, StepResult, amend, classify, pending, sacct};
use crate::snapshot::Manifest;

/// How long a cluster may be out of reach before the caller is told; the step goes on all the same.
const PATIENCE: Duration = Duration::from_secs(600);
const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const LONGEST_BACKOFF: Duration = Duration::from_secs(15);
/// Looks at the queue while nothing is heard: soon at first, then as rarely as a controller likes it (man squeue: no loops).
const FIRST_QUEUE_LOOK: Duration = Duration::from_millis(1500);
const LONGEST_QUEUE_LOOK: Duration = Duration::from_secs(30);
/// How long accounting gets to say its word after an end that needs explaining.
const SETTLE_LIMIT: Duration = Duration::from_secs(45);
/// How long a clean end waits for its confirming row: the answer is there within 0.2 s, or it is late and found later.
const CONFIRM_LIMIT: Duration = Duration::from_secs(2);
/// How often a request is taken to another allocation because the one it was queued for was over.
const MOST_MOVES: u32 = 5;
/// What of a stream's end is evidence.
const TAIL: u64 = 4096;

/// How following ended.
#[expect(clippy::large_enum_variant, reason = "made once an evaluation")]
enum Followed {
    /// The launcher wrote its record.
    Ended {
        result: Option<StepResult>,
        said: String,
    },
    /// The launcher did not take it: nothing ran.
    NotTaken { why: String },
    /// The allocation is over without a record.
    AllocationOver,
    /// We took the request back before anybody claimed it.
    Withdrawn,
}

/// One evaluation on its way.
pub(super) struct Evaluation<'a> {
    runner: &'a SlurmRunner,
    request: EvaluationRequest,
    manifest: Arc<Manifest>,
    record: Record,
    observer: &'a dyn Observer,
    cancel: CancellationToken,
    watch: Stopwatch,
    cancelling: bool,
    queue: Option<QueueRow>,
    node: Option<String>,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(
        runner: &'a SlurmRunner,
        request: EvaluationRequest,
        manifest: Manifest,
        record: Record,
        observer: &'a dyn Observer,
        cancel: CancellationToken,
        watch: Stopwatch,
    ) -> Self {
        let manifest = Arc::new(manifest);
        Self {
            runner,
            request,
            manifest,
            record,
            observer,
            cancel,
            watch,
            cancelling: false,
            queue: None,
            node: None,
        }
    }

    fn name(&self) -> String {
        format!("{}.{}", self.record.invocation, self.record.attempts.len())
    }

    async fn write_journal(&self) -> Result<(), RunError> {
        let (journal, record) = (self.runner.journal.clone(), self.record.clone());
        blocking(move || journal.write(&record))
            .await?
            .map_err(|error: JournalError| local_storage(error))
    }

    pub(super) async fn run(mut self, session: Arc<Session>) -> Result<Report, RunError> {
        let directory = self
            .runner
            .state
            .join("logs")
            .join(self.record.invocation.as_str());
        let mut spool = Spool::open(&directory).map_err(local_storage)?;
        let (lease, followed, mut session) = self.follow_to_the_end(session, &mut spool).await?;
        self.watch.mark("ended");
        // Asking twice changes nothing, so a connection that is lost here costs time and nothing else.
        let report = loop {
            match self.conclude(&session, &lease, &followed, &spool).await {
                Ok(report) => break report,
                Err(error) if error.kind == FailureKind::Unreachable => {
                    session = self.reach_again(error).await?;
                }
                Err(error) => return Err(error),
            }
        };
        self.record
            .completed(report.clone())
            .map_err(|error| internal("journal")(error.to_string()))?;
        self.write_journal().await?;
        // The workspace has served; the launcher removes it when nothing runs. Should this be lost, `gc` finds it.
        let drop_tree = format!("drop {}", self.name());
        if let Ok(tell) = checked_call("tell", &[&lease.generation(), &drop_tree]) {
            let mut batch = session.agent.batch();
            drop(batch.run(&tell));
            drop(session.agent.send(batch).await);
        }
        self.record
            .acknowledged()
            .map_err(|error| internal("journal")(error.to_string()))?;
        self.write_journal().await?;
        Ok(report)
    }

    /// Sends the request and follows it, through lost connections and allocations that were over.
    async fn follow_to_the_end(
        &mut self,
        mut session: Arc<Session>,
        spool: &mut Spool,
    ) -> Result<(LeaseRecord, Followed, Arc<Session>), RunError> {
        let mut over: Option<LeaseRecord> = None;
        let mut moves = 0;
        loop {
            let lease = allocate::ensure(
                self.runner,
                &session,
                self.request.nodes,
                over.as_ref(),
                self.observer,
            )
            .await?;
            self.record
                .submitting(lease.generation(), self.runner.clock.now())
                .map_err(|error| internal("journal")(error.to_string()))?;
            self.write_journal().await?;
            let why = loop {
                match self.send_and_follow(&session, &lease, spool).await {
                    Ok(Followed::NotTaken { why }) => break why,
                    Ok(followed) => return Ok((lease, followed, session)),
                    Err(error) if error.kind == FailureKind::Unreachable => {
                        session = self.reach_again(error).await?;
                    }
                    Err(error) => return Err(error),
                }
            };
            moves += 1;
            if moves > MOST_MOVES {
                return Err(RunError::new(
                    FailureKind::Refused,
                    format!("{moves} allocations in a row would not take the request: {why}"),
                )
                .hint("an allocation must be longer than --timeout; see `allocation_time` in the profile"));
            }
            self.record
                .withdrawn()
                .map_err(|error| internal("journal")(error.to_string()))?;
            over = Some(lease);
        }
    }

    /// Dials again until it works, patiently; the step does not depend on us.
    async fn reach_again(&self, error: RunError) -> Result<Arc<Session>, RunError> {
        let (begun, mut backoff, mut last) = (Instant::now(), FIRST_BACKOFF, error);
        while begun.elapsed() < PATIENCE && last.kind == FailureKind::Unreachable {
            tokio::select! {
                () = tokio::time::sleep(backoff) => {}
                () = self.cancel.cancelled(), if !self.cancelling => {}
            }
            backoff = (backoff * 2).min(LONGEST_BACKOFF);
            match self.runner.session.get(self.observer).await {
                Ok(session) => return Ok(session),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn send_and_follow(
        &mut self,
        session: &Arc<Session>,
        lease: &LeaseRecord,
        spool: &mut Spool,
    ) -> Result<Followed, RunError> {
        let id = self.manifest.id();
        let login = session.agent.login();
        let cluster = session.transport.describe().to_string();
        let mut known = Known::load(&self.runner.state, &cluster, &login.root);
        let archive = request::archive(&self.runner.profile, &self.request, &id)?;
        let mut delta: Option<PackedDelta> = None;
        if !known.has(&id) {
            delta = stage::pack_delta(&known, &self.request.candidate, &self.manifest).await?;
            if let Some(delta) = &delta {
                self.observer.phase(&Phase::Staging {
                    sent: delta.size(),
                    total: Some(delta.size()),
                });
            } else {
                self.upload(session, &mut known).await?;
            }
        }
        loop {
            let (answers, enqueued, follow) =
                self.send(session, lease, &archive, delta.as_ref(), spool).await?;
            let mut published = true;
            for answer in answers {
                let done = answer.answer().await.map_err(lost)?;
                published &= done.code == 0;
                if done.code != 0
                    && done.code != codes::MISSING_SNAPSHOT
                    && done.complaint().contains("space")
                {
                    return Err(stage::storage_error(&done));
                }
            }
            let done = enqueued.answer().await.map_err(lost)?;
            match done.code {
                0 => {
                    if delta.is_some() && published {
                        known.published(&id, None);
                    }
                    self.watch.mark("sent");
                    self.record
                        .submitted()
                        .map_err(|error| internal("journal")(error.to_string()))?;
                    return self.follow(session, lease, follow, spool).await;
                }
                codes::MISSING_SNAPSHOT => {
                    // Scratch is purged, or this is another cluster behind the same name.
                    known.forget();
                    delta = None;
                    self.upload(session, &mut known).await?;
                }
                codes::GENERATION_CLOSED | codes::GENERATION_MISSING => {
                    return Ok(Followed::NotTaken {
                        why: "the allocation had ended".to_owned(),
                    });
                }
                _ => return Err(stage::storage_error(&done)),
            }
            let mut batch = session.agent.batch();
            batch.unfollow(&self.name());
            session.agent.send(batch).await.map_err(lost)?;
        }
    }

    async fn upload(&self, session: &Session, known: &mut Known) -> Result<(), RunError> {
        let id = self.manifest.id();
        let there = checked_call("has_snapshot", &[id.as_str()])?;
        if session.agent.run(&there).await.map_err(lost)?.code != 0 {
            let mark = self.mark()?;
            stage::upload(
                session,
                &self.request.candidate,
                &self.manifest,
                &mark,
                self.observer,
            )
            .await?;
        }
        known.published(&id, Some(Arc::clone(&self.manifest)));
        Ok(())
    }

    /// A name of our own below the remote `incoming`.
    fn mark(&self) -> Result<String, RunError> {
        let suffix = crate::ids::random_hex(4).map_err(|error| internal("randomness")(error.to_string()))?;
        Ok(format!("{}.{suffix}", self.name()))
    }

    /// Everything that this evaluation needs, in one go: the difference, the request, and the wish to hear of it.
    async fn send(
        &self,
        session: &Session,
        lease: &LeaseRecord,
        archive: &[u8],
        delta: Option<&PackedDelta>,
        spool: &Spool,
    ) -> Result<(Vec<Pending<Done>>, Pending<Done>, Follow), RunError> {
        let (id, name, mark, generation) =
            (self.manifest.id(), self.name(), self.mark()?, lease.generation());
        let mut batch = session.agent.batch();
        let mut answers = match delta {
            Some(delta) => stage::add_delta(&mut batch, &id, delta, &mark)?,
            None => Vec::new(),
        };
        answers.push(batch.unpack(&mark, archive));
        let enqueued = batch.run(&checked_call(
            "enqueue",
            &[&generation, &name, id.as_str(), &mark],
        )?);
        let follow = batch.follow(&generation, &name, 0, spool.stdout.size, spool.stderr.size);
        session.agent.send(batch).await.map_err(lost)?;
        Ok((answers, enqueued, follow))
    }

    async fn follow(
        &mut self,
        session: &Arc<Session>,
        lease: &LeaseRecord,
        mut follow: Follow,
        spool: &mut Spool,
    ) -> Result<Followed, RunError> {
        if self.runner.scheduler() == Scheduler::Slurm {
            // Accounting will be asked in the end: its shell starts while the step does.
            let session = Arc::clone(session);
            tokio::spawn(async move {
                if let Err(error) = session.control().await {
                    tracing::debug!(%error, "the shell for queries does not start yet");
                }
            });
        }
        let mut claimed = false;
        let mut look = FIRST_QUEUE_LOOK;
        let mut next_look = tokio::time::Instant::now() + look;
        loop {
            let event = tokio::select! {
                event = follow.next() => event.map_err(lost)?,
                () = self.cancel.cancelled(), if !self.cancelling => {
                    self.cancelling = true;
                    if !claimed && self.withdraw(session, lease).await? {
                        return Ok(Followed::Withdrawn);
                    }
                    self.tell_cancel(session, lease).await?;
                    continue;
                }
                () = tokio::time::sleep_until(next_look) => {
                    if let Some(followed) = self.look_at_queue(session, lease, claimed).await? {
                        // The launcher's last word may be on its way: hear what there still is.
                        return Ok(self.drain(&mut follow, spool).await?.unwrap_or(followed));
                    }
                    look = (look * 2).min(LONGEST_QUEUE_LOOK);
                    next_look = tokio::time::Instant::now() + look;
                    continue;
                }
            };
            if let FollowEvent::Line {
                by_step: false,
                words,
            } = &event
                && words.starts_with("claimed")
            {
                claimed = true;
            }
            if let Some(followed) = self.heard(event, spool)? {
                return Ok(followed);
            }
        }
    }

    async fn drain(&mut self, follow: &mut Follow, spool: &mut Spool) -> Result<Option<Followed>, RunError> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(2);
        while let Ok(event) = tokio::time::timeout_at(deadline, follow.next()).await {
            let event: Result<FollowEvent, AgentError> = event;
            if let Some(followed) = self.heard(event.map_err(lost)?, spool)? {
                return Ok(Some(followed));
            }
        }
        Ok(None)
    }

    fn heard(&mut self, event: FollowEvent, spool: &mut Spool) -> Result<Option<Followed>, RunError> {
        match event {
            FollowEvent::State(words) => tracing::debug!(words, "launcher"),
            FollowEvent::Line { by_step, words } => self.line(by_step, &words)?,
            FollowEvent::Data { stream, offset, data } => {
                let copy = spool.copy(stream);
                copy.write(offset, &data).map_err(local_storage)?;
                self.observer.output(stream, &copy.path, copy.size);
            }
            FollowEvent::End { result, said } => {
                if result.is_empty() {
                    let why = "the launcher refused it: too little time is left, or it is closing".to_owned();
                    return Ok(Some(Followed::NotTaken { why }));
                }
                let said = String::from_utf8_lossy(&said).into_owned();
                let result = serde_json::from_slice::<StepResult>(&result)
                    .inspect_err(|error| tracing::warn!(%error, "the result file is malformed"))
                    .ok();
                if let Some(result) = &result {
                    for (stream, announced) in
                        [(Stream::Stdout, result.stdout), (Stream::Stderr, result.stderr)]
                    {
                        let arrived = spool.copy(stream).size;
                        if arrived != announced {
                            return Err(lost(AgentError {
                                reason: format!(
                                    "{} bytes of {} arrived, {announced} were announced",
                                    arrived,
                                    stream.file_name()
                                ),
                            }));
                        }
                    }
                }
                return Ok(Some(Followed::Ended { result, said }));
            }
        }
        Ok(None)
    }

    fn line(&mut self, by_step: bool, words: &str) -> Result<(), RunError> {
        let mut parts = words.split(' ');
        match (by_step, parts.next().unwrap_or_default()) {
            (false, "claimed") => {
                self.watch.mark("claimed");
                self.observer.phase(&Phase::Preparing);
            }
            (false, "launched") => {
                self.watch.mark("launched");
                self.observer.phase(&Phase::Starting);
            }
            (true, "started") => {
                self.watch.mark("started");
                self.node = parts.nth(1).map(str::to_owned);
                self.observer.phase(&Phase::Running {
                    node: self.node.clone(),
                });
                self.record
                    .running()
                    .map_err(|error| internal("journal")(error.to_string()))?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn withdraw(&self, session: &Session, lease: &LeaseRecord) -> Result<bool, RunError> {
        let call = checked_call("withdraw", &[&lease.generation(), &self.name()])?;
        Ok(session.agent.run(&call).await.map_err(lost)?.code == 0)
    }

    async fn tell_cancel(&self, session: &Session, lease: &LeaseRecord) -> Result<(), RunError> {
        let words = format!("cancel {}", self.name());
        let call = checked_call("tell", &[&lease.generation(), &words])?;
        session.agent.run(&call).await.map_err(lost).map(drop)
    }

    /// Asks Slurm about the allocation. `Some`: it is over, and the request with it.
    async fn look_at_queue(
        &mut self,
        session: &Arc<Session>,
        lease: &LeaseRecord,
        claimed: bool,
    ) -> Result<Option<Followed>, RunError> {
        let (Some(job), Scheduler::Slurm) = (lease.job, self.runner.scheduler()) else {
            return self.look_at_local_launcher(session, lease, claimed).await;
        };
        let control = session.control().await?;
        let row = match allocate::queue_row(&control, job).await? {
            Ok(row) => row,
            Err(words) => {
                tracing::debug!(words, "the queue cannot be asked");
                return Ok(None);
            }
        };
        let over = match &row {
            Some(row) => {
                if row.state.phase() == JobPhase::Waiting {
                    let reason = pending::sentence(&row.reason);
                    self.observer.phase(&Phase::Queued {
                        job,
                        reason: reason.clone(),
                        start: row.start,
                    });
                    if pending::never_starts(&row.reason) {
                        return self.never_starts(session, lease, job, &reason).await;
                    }
                }
                if row.state.phase() == JobPhase::Stuck {
                    return self.never_starts(session, lease, job, row.state.word()).await;
                }
                row.state.phase() == JobPhase::Ended
            }
            // Not in the queue: over only if accounting says so.
            None => allocate::accounting(&control, job).await?.is_ok_and(|rows| {
                sacct::select(&rows, None)
                    .0
                    .is_some_and(|row| row.state.phase() == JobPhase::Ended)
            }),
        };
        self.queue = row.or(self.queue.take());
        self.over(session, lease, over, claimed).await
    }

    async fn over(
        &self,
        session: &Session,
        lease: &LeaseRecord,
        over: bool,
        claimed: bool,
    ) -> Result<Option<Followed>, RunError> {
        if !over {
            return Ok(None);
        }
        if !claimed && self.withdraw(session, lease).await? {
            return Ok(Some(Followed::NotTaken {
                why: "the allocation ended before it took the request".to_owned(),
            }));
        }
        Ok(Some(Followed::AllocationOver))
    }

    async fn look_at_local_launcher(
        &self,
        session: &Session,
        lease: &LeaseRecord,
        claimed: bool,
    ) -> Result<Option<Followed>, RunError> {
        let script = format!(
            "IFS= read -r s <$root/leases/{}/state || exit 0; read -r w p _ <<<\"$s\"; [[ $w != closed ]] && kill -0 \"${{p:-{}}}\"",
            lease.generation(),
            lease.job.unwrap_or_default()
        );
        let alive = session.agent.run(&script).await.map_err(lost)?.code == 0;
        self.over(session, lease, !alive, claimed).await
    }

    /// A job that nobody will ever start is ended and named, not waited for.
    async fn never_starts(
        &self,
        session: &Session,
        lease: &LeaseRecord,
        job: u64,
        reason: &str,
    ) -> Result<Option<Followed>, RunError> {
        self.withdraw(session, lease).await?;
        let control = session.control().await?;
        control.run(&format!("scancel {job}")).await.map_err(lost)?;
        Err(RunError::new(
            FailureKind::Refused,
            format!("job {job} would never start: {reason}; it was cancelled"),
        )
        .hint(format!(
            "check `allocation_time` and [profiles.{}.slurm]",
            self.runner.profile.name
        )))
    }

    async fn conclude(
        &mut self,
        session: &Arc<Session>,
        lease: &LeaseRecord,
        followed: &Followed,
        spool: &Spool,
    ) -> Result<Report, RunError> {
        let (verdict, evidence) = self.settle(session, lease, followed, spool).await?;
        self.watch.mark("classified");
        self.report(session, lease, verdict, evidence, spool).await
    }

    /// From what was followed to a verdict, asking accounting as far as it is needed.
    async fn settle(
        &mut self,
        session: &Arc<Session>,
        lease: &LeaseRecord,
        followed: &Followed,
        spool: &Spool,
    ) -> Result<(Verdict, Evidence), RunError> {
        let mut evidence = Evidence {
            scheduler: self.runner.scheduler(),
            started: self.node.is_some(),
            stderr_tail: spool.stderr.tail(TAIL),
            queue: self.queue.clone(),
            cancel_requested: self.cancelling,
            own_uid: Some(session.agent.login().uid),
            ..Evidence::default()
        };
        match followed {
            Followed::Ended { result, said } => {
                evidence.result.clone_from(result);
                evidence.launch_said.clone_from(said);
            }
            Followed::Withdrawn => {
                return Ok((
                    Verdict {
                        outcome: Outcome::Cancelled,
                        cause: Cause::CancelledByUs,
                    },
                    evidence,
                ));
            }
            Followed::AllocationOver | Followed::NotTaken { .. } => {}
        }
        let begun = Instant::now();
        let mut pause = Duration::from_millis(50);
        loop {
            let decision = classify(&evidence);
            let confirmed = evidence
                .step
                .as_ref()
                .is_some_and(|row| row.state.phase() == JobPhase::Ended);
            let waited = begun.elapsed();
            if let Decision::Final(verdict) = decision {
                let clean = self.runner.scheduler() == Scheduler::Local
                    || confirmed
                    || waited > CONFIRM_LIMIT
                    || evidence
                        .result
                        .as_ref()
                        .is_none_or(|result| result.step.is_none());
                if clean {
                    let amended = amend(&verdict, &evidence);
                    return Ok((amended.unwrap_or(verdict), evidence));
                }
            } else if waited > SETTLE_LIMIT {
                evidence.settled = true;
                continue;
            } else if waited > Duration::from_secs(1) {
                self.observer.phase(&Phase::Settling);
            }
            let Some(job) = lease.job else {
                evidence.settled = true;
                continue;
            };
            if !evidence.settled && !waited.is_zero() && pause > Duration::from_millis(50) {
                tokio::time::sleep(pause).await;
            }
            pause = (pause * 2).min(Duration::from_secs(3));
            let control = session.control().await?;
            match allocate::accounting(&control, job).await? {
                Ok(rows) => {
                    // A step that could not say its number is found by its name.
                    let name = self.name();
                    let number = evidence.result.as_ref().and_then(|result| result.step);
                    let which = number.map_or(Wanted::Name(&name), Wanted::Number);
                    evidence.take_accounting(&witnesses(&rows, job, Some(which)));
                }
                Err(words) => evidence.accounting_error = Some(words),
            }
        }
    }

    async fn report(
        &mut self,
        session: &Arc<Session>,
        lease: &LeaseRecord,
        verdict: Verdict,
        evidence: Evidence,
        spool: &Spool,
    ) -> Result<Report, RunError> {
        let announced = evidence.result.as_ref().map_or(0, |result| result.artifacts);
        let mut missing_artifacts = Vec::new();
        let mut artifacts = Vec::new();
        if announced > 0 {
            self.observer.phase(&Phase::Collecting);
            let generation = lease.generation();
            (artifacts, missing_artifacts) = collect::artifacts(
                session,
                &generation,
                &self.name(),
                announced,
                &self.request.artifact_target,
            )
            .await?;
        }
        for path in &self.request.artifacts {
            let wanted = self.request.artifact_target.join(path.as_str());
            if !artifacts.iter().any(|artifact| artifact.starts_with(&wanted)) {
                missing_artifacts.push(format!(
                    "{path}: not there after the command (links are not followed)"
                ));
            }
        }
        let peer = session.transport.describe();
        let result = evidence.result.as_ref();
        let provenance = Provenance {
            profile: self.runner.profile.name.clone(),
            runner: match self.runner.scheduler() {
                Scheduler::Slurm => "slurm-ssh".to_owned(),
                Scheduler::Local => "local".to_owned(),
            },
            cluster: peer.to_string(),
            connection: peer.facts,
            job: lease.job,
            step: result.and_then(|result| result.step),
            node: result
                .and_then(|result| result.host.clone())
                .or(self.node.clone()),
            gpus: result.and_then(|result| result.gpus.clone()),
            cpus: result.and_then(|result| result.cpus.clone()),
            container: match &self.runner.profile.launch.container {
                crate::config::Container::None => None,
                crate::config::Container::Edf { environment } => Some(environment.clone()),
                crate::config::Container::Wrapper { argv } => Some(argv.join(" ")),
            },
            snapshot: self.record.snapshot.to_string(),
            attempt: u32::try_from(self.record.attempts.len()).unwrap_or(u32::MAX),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        self.watch.mark("collected");
        Ok(Report {
            invocation: self.record.invocation.clone(),
            verdict,
            evidence,
            provenance,
            stdout: spool.stdout.path.clone(),
            stderr: spool.stderr.path.clone(),
            artifacts,
            missing_artifacts,
            timings: std::mem::take(&mut self.watch.marks),
        })
    }
}
