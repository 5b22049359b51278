//! Each library has a process of its own, which ends without the others and has the environment of who has opened it.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{ANSWER, ASK, PlainUser};
use crate::fixture::*;

const WATCH: [&str; 5] = ["get", "namespaces", "-w", "-o", "name"];

/// The user's kubeconfig with the fault module, and with SoftHSM itself.
fn kubeconfigs(user: &PlainUser) -> [String; 2] {
    let faulty = fs::read_to_string(user.kubeconfig()).unwrap();
    let module = user.store.faulty_module();
    let (_, module) = module.split_once('=').unwrap();
    let real = faulty.replace(module, softhsm_library().to_str().unwrap());
    assert_ne!(faulty, real);
    [faulty, real]
}

/// Which of the libraries are in the process's memory.
fn loaded(process: Pid) -> [bool; 2] {
    let maps = fs::read_to_string(format!("/proc/{}/maps", process.as_raw_nonzero())).unwrap();
    ["libfault_module", "libsofthsm2"].map(|name| maps.contains(name))
}

/// The user's library is the fault module; SoftHSM's is root's. Nobody else has this user's tunnel process.
#[test]
fn each_library_is_loaded_by_a_process_of_its_own() {
    needs_isolation!();
    let user = PlainUser::unprivileged(61_205, &["--keep=15m", "--pin-source=env:TOKEN_PIN"]);
    let request = user.request().to_string();
    for kubeconfig in kubeconfigs(&user) {
        fs::write(user.kubeconfig(), kubeconfig).unwrap();
        user.plugin(&request).run().answer();
    }
    let tunnel = user.tunnel().unwrap();
    assert_eq!(loaded(tunnel.pid), [false; 2]);
    let processes = user.token_processes();
    let mut libraries: Vec<_> = processes.iter().map(|it| loaded(it.pid)).collect();
    libraries.sort_unstable();
    // The fault module passes calls on to SoftHSM.
    assert_eq!(libraries, [[false, true], [true, true]], "{processes:#?}");
    for process in &processes {
        for open in open_files(process.pid) {
            let open = open.to_str().unwrap();
            assert!(!open.starts_with("pipe:") && !open.starts_with("/dev/pts"), "{open}");
        }
    }
    user.program(&["stop"]).run().printed();
    user.expect_nothing_left();
}

#[test]
fn a_library_that_crashes_ends_no_connection_of_another_key() {
    needs_isolation!();
    let user = PlainUser::new(&["--keep=15m"]);
    let [faulty, real] = kubeconfigs(&user);
    fs::write(user.kubeconfig(), real).unwrap();
    let mut watching = user.kubectl(&WATCH).start(None);
    watching.line();
    let tunnel = user.tunnel().unwrap().pid;
    fs::write(user.kubeconfig(), faulty).unwrap();
    // While a TLS client waits, and while a key is opened.
    for (fault, said) in [
        ("C_Sign:crash=segv", "SIGSEGV"),
        ("C_Sign:crash=exit", "exit status: 4"),
        ("C_OpenSession:crash=abort", "SIGABRT"),
    ] {
        let crashed = user.shell(ASK).suffering(&user.store, fault).run();
        assert!(!crashed.status.success(), "{crashed:?}");
        crashed.says(&["libfault_module.so has crashed", said, "run the command again"]);
        wait_until("its key is closed", || user.status()["keys"].as_array().unwrap().len() == 1);
        assert_eq!(user.token_processes().len(), 1);
        assert_eq!(user.shell(ASK).run().printed(), ANSWER);
        // The next one is to open the key anew.
        let killed = user.token_processes().into_iter().find(|it| loaded(it.pid)[0]).unwrap();
        kill_process(killed.pid, Signal::KILL).unwrap();
        wait_until("its key is closed", || user.status()["keys"].as_array().unwrap().len() == 1);
    }
    assert_eq!(user.tunnel().unwrap().pid, tunnel);
    assert_eq!(user.status()["keys"][0]["connections"], 1);
    kill_process(watching.pid(), Signal::INT).unwrap();
    watching.finish();
    user.program(&["stop"]).run().printed();
    user.expect_nothing_left();
}

#[test]
fn a_library_that_hangs_ends_with_its_process_and_the_next_command_opens_the_key() {
    let user = PlainUser::new(&["--keep=15m"]);
    let hanging = user.plugin(&user.request().to_string());
    let outcome = hanging.suffering(&user.store, "C_OpenSession:hang").run();
    outcome.fails_in_one_line(4, &["libfault_module.so has crashed or hung", "exit status: 4"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    user.program(&["stop"]).run().printed();
    user.expect_nothing_left();
}

/// The link leads to SoftHSM at one look, and to a library of the attacker's at the next. Both may be loaded, but not beside
/// a PIN that was entered before.
#[test]
fn a_link_that_flips_brings_no_other_library_beside_the_pin() {
    needs_isolation!();
    let user = PlainUser::new(&["--keep=15m"]);
    let [_, real] = kubeconfigs(&user);
    fs::write(user.kubeconfig(), real).unwrap();
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    let [open] = &user.token_processes()[..] else { panic!("{:#?}", user.processes()) };
    let link = user.path("link.so");
    let targets = [softhsm_library().to_owned(), user.path("libfault_module.so")];
    let mut arguments = user.current()["users"][0]["user"]["exec"]["args"].take();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            let new = user.path("new.so");
            while !over.load(Ordering::Relaxed) {
                for target in &targets {
                    symlink(target, &new).unwrap();
                    fs::rename(&new, &link).unwrap();
                }
            }
        });
        wait_until("there is a link", || link.exists());
        for id in 2..32 {
            for argument in arguments.as_array_mut().unwrap() {
                let text = argument.as_str().unwrap();
                if text.starts_with("--module=") {
                    *argument = format!("--module={}", link.display()).into();
                } else if text.starts_with("--object-id=") {
                    *argument = format!("--object-id={id}").into();
                }
            }
            user.set_plugin("args", arguments.clone());
            user.plugin(&user.request().to_string()).run().failed();
            assert!(!loaded(open.pid)[0], "with the registration for key {id}");
        }
    });
    user.program(&["stop"]).run().printed();
    user.expect_nothing_left();
}

/// Secrets of other programs are nothing to them.
#[test]
fn processes_keep_of_the_environment_what_libraries_read() {
    needs_isolation!();
    let user = PlainUser::new(&["--keep=15m"]);
    let ask = user
        .shell(ASK)
        .variable("OPENSSL_CONF", "/dev/null")
        .variable("MY_HSM_TOKEN", "secret-of-another")
        .variable("SECRETX", "secret-of-another");
    assert_eq!(ask.run().printed(), ANSWER);
    let mut processes = user.token_processes();
    processes.extend(user.tunnel());
    assert_eq!(processes.len(), 2, "{processes:#?}");
    for process in processes {
        let place = format!("/proc/{}/environ", process.pid.as_raw_nonzero());
        let environment = fs::read_to_string(place).unwrap();
        let names = environment.split('\0').filter_map(|it| it.split_once('='));
        let names: Vec<_> = names.map(|(name, _)| name).collect();
        assert!(!environment.contains("secret-of-another"), "{names:?}");
        for kept in ["HOME", "OPENSSL_CONF", "SOFTHSM2_CONF"] {
            assert!(names.contains(&kept), "{kept}: {names:?}");
        }
        for left in ["KUBECONFIG", "KUBERNETES_EXEC_INFO", "SIGNER", "TOKEN_PIN"] {
            assert!(!names.contains(&left), "{left}: {names:?}");
        }
    }
    user.program(&["stop"]).run().printed();
}

#[test]
fn a_key_in_another_environment_is_another_key() {
    let user = PlainUser::new(&["--keep=15m"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    // The same token elsewhere.
    let copy = user.path("copy");
    let script = "cp -r ~/tokens ~/copy && sed 's,/tokens,/copy,' ~/softhsm2.conf >~/copy.conf";
    user.shell(script).run().printed();
    let elsewhere = || user.shell(ASK).variable("SOFTHSM2_CONF", user.path("copy.conf"));
    let logins = user.counts().0;
    for _ in 0..2 {
        assert_eq!(elsewhere().run().printed(), ANSWER);
        assert_eq!(user.shell(ASK).variable("SSH_TTY", "/dev/pts/7").run().printed(), ANSWER);
    }
    assert_eq!(user.counts().0, logins + 1);
    assert_eq!(user.status()["keys"].as_array().unwrap().len(), 2);
    fs::remove_dir_all(copy).unwrap();
    user.program(&["stop"]).run().printed();
    // An environment without the token is told so, whatever is open elsewhere.
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    elsewhere().run().says(&["does not initialise", "SOFTHSM2_CONF"]);
    user.program(&["stop"]).run().printed();
    user.expect_nothing_left();
}
