//! Simulated runs: the same seed gives the same run, and each kind of failure is reported.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use txn_core::{Error, Raw, Transaction};
use txn_sim::{BoxError, FaultPlan, Simulation, Worker};

/// Writes a few documents, which all processes share.
async fn write_some(worker: &Worker) -> Result<(), BoxError> {
    let documents = worker.domain().collection::<Raw>("documents").await?;
    for n in 0..4 {
        let id = format!("d{}", worker.random(0..3));
        let image = Raw::new(format!(r#"{{"by":"{}.{n}"}}"#, worker.number()));
        let write = async |tx: &Transaction| {
            tx.get(&documents, "d0").await?;
            tx.put(&documents, &*id, &image)?;
            Ok::<_, Error>(())
        };
        // Its outcome does not matter here.
        drop(worker.domain().transact(write).await);
    }
    Ok(())
}

async fn create(domain: &txn_core::Domain) -> Result<(), BoxError> {
    domain.create_collection::<Raw>("documents", None).await?;
    Ok(())
}

#[test]
fn same_seed_gives_same_run() {
    let log = |seed| {
        let fail = async |_: &_, (): &()| Err("to get the log".into());
        let simulation = Simulation::new("same").with_seed(seed).with_processes(3);
        let failure = simulation.try_run(create, async |worker, ()| write_some(worker).await, fail);
        let failure = failure.expect_err("the check fails");
        assert!(failure.is_repeatable(), "{failure}");
        failure.log().to_vec()
    };
    for seed in 0..10 {
        let first = log(seed);
        assert!(first.len() > 10, "{first:?}");
        assert_eq!(first, log(seed), "seed {seed}");
        assert_ne!(first, log(seed + 100), "seed {seed}");
    }
}

#[test]
fn panic_of_a_workload_is_a_failure() {
    let failure = Simulation::new("panic")
        .with_processes(1)
        .with_deaths(0.0)
        .try_run(create, async |_, ()| panic!("an assertion"), async |_, ()| Ok(()))
        .expect_err("the workload panics");
    assert_eq!(failure.reason(), "the workload panicked: an assertion");
    assert_eq!(failure.seed(), 0);
}

#[test]
fn error_without_faults_is_a_failure() {
    let failure = Simulation::new("error")
        .try_run(create, async |_, ()| Err("no such shop".into()), async |_, ()| Ok(()))
        .expect_err("the workload never succeeds");
    assert_eq!(failure.reason(), "the workload failed, no faults: no such shop");
}

#[test]
fn workload_without_an_end_is_a_failure() {
    let failure = Simulation::new("endless")
        .with_processes(1)
        .try_run(create, async |_, ()| std::future::pending().await, async |_, ()| Ok(()))
        .expect_err("the workload never ends");
    assert_eq!(failure.reason(), "a workload did not end within 300 s without faults");
}

#[test]
fn dependence_on_more_than_the_seed_is_reported() {
    let runs = Cell::new(0);
    let failure = Simulation::new("external")
        .try_run(
            create,
            async |_, ()| Ok(()),
            async |_, ()| {
                runs.set(runs.get() + 1);
                Err(format!("run {}", runs.get()).into())
            },
        )
        .expect_err("the check fails");
    assert!(!failure.is_repeatable());
    assert!(failure.to_string().contains("a second run differed"), "{failure}");
}

#[test]
fn dead_process_starts_again_with_its_number() {
    let starts = RefCell::new(Vec::new());
    let report = Simulation::new("deaths").with_seeds(0..20).with_deaths(0.9).run(
        create,
        async |worker, ()| {
            starts.borrow_mut().push((worker.number(), worker.restarts()));
            write_some(worker).await
        },
        async |_, ()| Ok(()),
    );
    assert!(report.deaths() > 20, "{report}");
    assert!(starts.borrow().iter().any(|(_, restarts)| *restarts > 0));
    assert!(starts.borrow().iter().all(|(number, _)| *number < 2));
}

#[test]
fn simulation_without_faults_injects_none() {
    let began = Cell::new(None);
    let report = Simulation::new("calm")
        .with_seeds(0..3)
        .with_faults(FaultPlan::none(0))
        .with_deaths(0.0)
        .run(
            create,
            async |worker, ()| {
                began.set(Some(tokio::time::Instant::now()));
                tokio::time::sleep(Duration::from_secs(3)).await;
                write_some(worker).await
            },
            async |_, ()| Ok(()),
        );
    assert_eq!((report.faults(), report.deaths(), report.failed_workloads()), (0, 0, 0));
    assert!(began.get().is_some());
}
