//! k9s, which stays open while the token is pulled and put back.

use super::PlainUser;
use crate::fixture::*;

/// A user, the relay before the cluster, and k9s at a terminal, which shows the config maps of a namespace of its own.
struct Screen {
    user: PlainUser,
    relay: Forwarder,
    terminal: Terminal,
}

impl Screen {
    fn open(options: &[&str]) -> Self {
        let mut entry = cluster().entry();
        let relay = Forwarder::to(entry["server"].as_str().unwrap());
        entry["server"] = relay.url().into();
        let store = cluster().token(Kind::P256, ADMINISTRATOR);
        let user = PlainUser::at(store, &entry, options);
        let namespace = user.context();
        let made = cluster().administrator(&user.store);
        made.arguments(&["create", "namespace", &namespace]).run().printed();
        // It ends after five attempts in vain otherwise.
        let settings = user.path("k9s");
        fs::create_dir(&settings).unwrap();
        let text = "k9s: {maxConnRetry: 100, skipLatestRevCheck: true, refreshRate: 2}\n";
        fs::write(settings.join("config.yaml"), text).unwrap();
        let screen = user
            .client(k9s())
            .arguments(&["--headless", "--logoless", "--splashless", "--readonly"])
            .arguments(&["-n", &namespace, "-c", "configmaps"])
            .variable("K9S_CONFIG_DIR", settings)
            .variable("COLORTERM", "")
            .at_terminal();
        Self { user, relay, terminal: screen }
    }

    fn make(&self, name: &str) {
        let namespace = self.user.context();
        let made = cluster().administrator(&self.user.store);
        made.arguments(&["-n", &namespace, "create", "configmap", name]).run().printed();
    }

    /// Makes a config map and waits until it is on the screen.
    #[track_caller]
    fn expect_to_work(&mut self, name: &str) {
        self.make(name);
        self.terminal.expect(name);
    }

    fn close(mut self) -> (PlainUser, String) {
        self.terminal.press_ctrl('c');
        let (outcome, screen) = self.terminal.finish();
        assert!(outcome.status.success(), "{outcome:?}");
        (self.user, screen)
    }
}

#[test]
#[ignore = "k9s takes five minutes to build"]
fn a_token_that_is_pulled_and_put_back_is_used_again_without_a_prompt() {
    let mut screen = Screen::open(&[]);
    screen.terminal.expect_prompt().type_line(PIN);
    screen.expect_to_work("at-first");
    let [here, away] = ["tokens", "away"].map(|name| screen.user.path(name));
    fs::rename(&here, &away).unwrap();
    // A ticket of the server's may do without the token, so this need not fail.
    screen.relay.cut();
    screen.relay.wait_for_connections(screen.relay.accepted() + 1);
    fs::rename(&away, &here).unwrap();
    screen.relay.cut();
    screen.expect_to_work("at-last");
    let (user, text) = screen.close();
    assert_eq!(text.matches("PIN for \"").count(), 1, "{text}");
    user.expect_nothing_left();
}
