//! The crate's telemetry reaches the collectors of a program.

use super::{Stage, assert_matches};
use kvlock::Error;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, Value};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use std::time::{Duration, Instant};
use tracing_subscriber::layer::SubscriberExt;

/// Runs `work` on this thread alone, because the recorder and the subscriber are local to it.
fn here<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

/// Times recorded since the last call, with their names.
fn times(snapshotter: &Snapshotter) -> Vec<(String, f64)> {
    let all = snapshotter.snapshot().into_vec().into_iter();
    let of_one = all.flat_map(|(key, _, _, value)| {
        let seconds = if let DebugValue::Histogram(seconds) = value { seconds } else { Vec::new() };
        seconds.into_iter().map(move |it| (key.key().name().to_owned(), it.0))
    });
    of_one.collect()
}

#[test]
fn wait_and_hold_times_are_recorded_in_histograms() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        here(async {
            let mut stage = Stage::set().await;
            stage.taken("k");
            let lock = stage.client.lock("k");
            assert!(lock.try_acquire().await.unwrap().is_none());

            let begun = Instant::now();
            let until_released = async {
                tokio::time::sleep(Duration::from_millis(60)).await;
                stage.control.run("LOCK.RELEASE k somebody");
            };
            let (guard, ()) = tokio::join!(lock.acquire(), until_released);
            let (guard, waited) = (guard.unwrap(), begun.elapsed().as_secs_f64());

            assert_matches!(&*times(&snapshotter), [(name, wait)]
                if name == "kvlock_client_wait_seconds" && (0.05..=waited).contains(wait));

            let begun = Instant::now();
            tokio::time::sleep(Duration::from_millis(40)).await;
            guard.release().await.unwrap();
            let most = waited + begun.elapsed().as_secs_f64();
            assert_matches!(&*times(&snapshotter), [(name, held)]
                if name == "kvlock_client_hold_seconds" && (0.04..=most).contains(held));

            // The hold time of a lost lock is recorded once.
            let guard = lock.acquire().await.unwrap();
            stage.control.run("LOCK.FORCERELEASE k");
            assert_matches!(guard.release().await, Err(Error::Lost(_)));
            let held = |told: &&(String, f64)| told.0 == "kvlock_client_hold_seconds";
            assert_eq!(times(&snapshotter).iter().filter(held).count(), 1);
        });
    });
}

fn attribute(span: &SpanData, key: &'static str) -> Option<Value> {
    let key = Key::from_static_str(key);
    span.attributes.iter().find(|pair| pair.key == key).map(|pair| pair.value.clone())
}

#[test]
fn open_telemetry_nests_acquires_and_releases_in_the_programs_spans() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let collected = tracing_subscriber::registry().with(layer);
    let mut tokens = Vec::new();
    tracing::subscriber::with_default(collected, || {
        here(async {
            let mut stage = Stage::set().await;
            // If another test ran first, tracing may have cached that there is no subscriber.
            stage.client.lock("first").acquire().await.unwrap().release().await.unwrap();
            tracing::callsite::rebuild_interest_cache();
            exporter.reset();
            let work = async {
                let guard = stage.client.lock("k").acquire().await.unwrap();
                tokens.push(guard.token().value());
                guard.release().await.unwrap();
                let permits = stage.client.semaphore("s");
                permits.set(3).await.unwrap();
                let permits = permits.acquire().await.unwrap();
                permits.release().await.unwrap();
                // A dropped guard has spans too.
                drop(stage.client.lock("k").acquire().await.unwrap());
                stage.client.settled().await;
            };
            tracing::Instrument::instrument(work, tracing::info_span!("order")).await;
            stage.control.run("DEL s");
        });
    });

    let spans = exporter.get_finished_spans().unwrap();
    let order = spans.iter().find(|span| span.name == "order").unwrap();
    let ours: Vec<_> = spans.iter().filter(|span| span.name.starts_with("kvlock.")).collect();
    let names: Vec<_> = ours.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["kvlock.acquire", "kvlock.release"].repeat(3));
    for span in &ours {
        assert_eq!(span.parent_span_id, order.span_context.span_id(), "{span:?}");
        assert!(attribute(span, "token").is_some(), "{span:?}");
    }
    let keys: Vec<_> = ours.iter().filter_map(|span| attribute(span, "key")).collect();
    assert_eq!(keys, ["k", "k", "s", "s", "k", "k"].map(Value::from));
    let token = Some(Value::from(tokens[0].to_string()));
    assert_eq!([attribute(ours[0], "token"), attribute(ours[1], "token")], [token.clone(), token]);
}
