//! What a request, a run and a sealed file cost with four times as much in the token, the kubeconfig and the file: counted
//! in calls, which no other process on the machine changes.

use crate::fixture::*;

/// A token with the pair that is asked for, and so many other pairs.
fn token_beside(others: u8) -> Store {
    let pair = |id: &[u8]| Object::pair(key(Kind::P256), id);
    token_with(pair(&[1]).into_iter().chain((0..others).flat_map(|id| pair(&[9, id]))))
}

/// How many calls the library has seen.
fn calls(store: &Store, invocation: Invocation) -> usize {
    invocation.suffering(store, "").run().succeeded();
    store.history().len()
}

#[test]
fn a_request_makes_as_many_calls_whatever_else_is_on_the_token() {
    let calls_beside = |others| {
        let certificate = token_beside(others);
        let signature = token_beside(others);
        let signing = signature.faulty(signature.configuration_with_pin_source());
        let asking = certificate.faulty(certificate.configuration());
        [
            calls(&certificate, certificate.certificate_with(&asking)),
            calls(&signature, signature.sign_with(&signing)),
        ]
    };
    assert_eq!(calls_beside(5), calls_beside(20));
}

/// A kubeconfig with so many contexts, each with a cluster and a user of its own.
fn contexts(store: &Store, number: usize) -> Value {
    let user = provider(store.configuration_with_pin_source());
    let named = |kind: &str, entry: &dyn Fn(usize) -> Value| {
        let element = |i| json!({"name": format!("{kind}-{i}"), kind: entry(i)});
        (0..number).map(element).collect::<Vec<_>>()
    };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "context-0",
        "clusters": named("cluster", &|i| json!({"server": format!("https://127.0.0.1:{}", i + 1)})),
        "users": named("user", &|_| user.clone()),
        "contexts": named("context", &|i| {
            json!({"cluster": format!("cluster-{i}"), "user": format!("user-{i}")})
        }),
    })
}

/// The system calls of a run with a kubeconfig of so many contexts.
#[cfg(target_os = "linux")]
fn system_calls_of_run(number: usize) -> usize {
    let store = token_with_pair(Kind::P256);
    let kubeconfig = store.file("many", contexts(&store, number).to_string(), 0o600);
    let trace = store.path("trace");
    let strace = tool("strace", "strace");
    // Those that wait are made as often as there is something to wait for.
    let options =
        ["-f", "-e", "trace=!futex,epoll_wait,sched_yield,mmap,munmap,mprotect,madvise,brk", "-o"];
    store
        .with_pin(&["run", "--", "true"])
        .variable("KUBECONFIG", kubeconfig)
        .through(
            strace.get_program().to_str().unwrap(),
            &[&options[..], &[trace.to_str().unwrap()]].concat(),
        )
        .run()
        .succeeded();
    fs::read_to_string(trace).unwrap().lines().count()
}

#[cfg(target_os = "linux")]
#[test]
fn four_times_the_contexts_make_four_times_the_system_calls_of_a_run() {
    let [none, few, many] = [1, 21, 81].map(system_calls_of_run);
    let (few, many) = (few - none, many - none);
    assert!(many * 10 <= few * 42, "{few} and {many} beside {none}");
}
