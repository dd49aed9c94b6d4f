//! Tasks that all need the same result, without the client crate. A task looks for the result, acquires the
//! lock, and looks again. In the variant with `SET NX PX`, it looks and tries to acquire every 100 ms.

use crate::Connect;
use crate::lua::Lua;
use crate::poller::POLL;
use crate::wire::{Reply, Wire};
use driver::{Args, Session, now};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Runs the tasks. The input and the output are as in `by-crate/once.rs`.
pub(crate) async fn run(args: &Args) -> ! {
    let (worked, mut tasks) = (Arc::new(AtomicU64::new(0)), Vec::new());
    for task in 0..args.number("tasks") {
        let wire = Wire::connect(args.text("url")).await;
        let lua = match args.text("proto") {
            "lua" => Some(Lua::connect(args, args.number::<usize>("first") + task).await),
            _ => None,
        };
        tasks.push((wire, lua));
    }
    println!("ready {}", env!("CARGO_PKG_VERSION"));
    tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await.unwrap();
    let mut running = JoinSet::new();
    for (wire, lua) in tasks {
        let worked = worked.clone();
        let (key, lease_ms) = (args.text("key").to_owned(), args.text("lease_ms").to_owned());
        running.spawn(async move {
            let works = match lua {
                Some(lua) => checked(wire, lua, &key).await,
                None => polled(wire, &key, &lease_ms).await,
            };
            worked.fetch_add(u64::from(works), Ordering::Relaxed);
        });
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    println!("{} {}", now(), worked.load(Ordering::Relaxed));
    println!("done");
    std::process::exit(0);
}

async fn is_there(wire: &mut Wire, key: &str) -> bool {
    !matches!(wire.call(&[b"GET", key.as_bytes()]).await, Reply::Nil)
}

/// Returns whether the task has to produce the result itself.
async fn checked(mut wire: Wire, mut lua: Lua, key: &str) -> bool {
    if is_there(&mut wire, key).await {
        return false;
    }
    let held = lua.acquire(&lock(key)).await;
    let works = !is_there(&mut wire, key).await;
    lua.release(held).await;
    works
}

async fn polled(mut wire: Wire, key: &str, lease_ms: &str) -> bool {
    let lock = lock(key);
    loop {
        if is_there(&mut wire, key).await {
            return false;
        }
        let set = ["SET", &lock, "1", "NX", "PX", lease_ms].map(str::as_bytes);
        if !matches!(wire.call(&set).await, Reply::Nil) {
            let works = !is_there(&mut wire, key).await;
            wire.call(&[b"DEL", lock.as_bytes()]).await;
            return works;
        }
        sleep(POLL).await;
    }
}

fn lock(key: &str) -> String {
    format!("{{{key}}}:lock")
}
