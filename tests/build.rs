//! With `KVLOCK_SERVER` set, `on_each_server!` makes one test on that server, not three.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(one_server)");
    println!("cargo::rerun-if-env-changed=KVLOCK_SERVER");
    if std::env::var_os("KVLOCK_SERVER").is_some() {
        println!("cargo::rustc-cfg=one_server");
    }
}
