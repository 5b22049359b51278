//! Other languages' settings, and a label that isn't in English: nothing else is said, and the token is found.

use crate::fixture::*;

const LABEL: &str = "Schlüssel ığİ 鍵";
/// Their names, and the language and the encoding that they are made of.
const LOCALES: [(&str, [&str; 2]); 3] = [
    ("de_DE.UTF-8", ["de_DE", "UTF-8"]),
    ("tr_TR.UTF-8", ["tr_TR", "UTF-8"]),
    ("ja_JP.eucJP", ["ja_JP", "EUC-JP"]),
];

#[test]
fn no_locale_changes_what_is_said_or_which_token_is_found() {
    let store = Store::new([blueprint(LABEL, Object::pair(key(Kind::P256), &[1]))]);
    let configuration = store.configuration().without("slotId").with("tokenLabel", LABEL);
    let options = Options::hash(Hash::Sha256);
    let sign = |it: &Configuration| store.ask(&sign_request(it, &options, &sample(32)));
    let module = softhsm_option();
    // A locale that isn't there is C.
    let locales = store.path("locales");
    fs::create_dir(&locales).unwrap();
    for (name, [language, encoding]) in LOCALES {
        let mut localedef = tool("localedef", "libc-bin");
        localedef.args(["--no-archive", "-i", language, "-f", encoding]).arg(locales.join(name));
        let output = localedef.output().unwrap();
        assert!(output.status.success(), "Debian's package locales has its sources: {output:?}");
    }
    let told = |name: &str, value: &str| {
        let within = |it: Invocation| it.variable(name, value).variable("LOCPATH", &locales);
        // The system's words.
        let nowhere = within(store.command(&["list", "--module=/nowhere.so"])).run();
        nowhere.fails(4, &["No such file or directory"]);
        let listed = within(store.command(&["list", module])).run().printed();
        assert!(listed.contains(LABEL), "{listed}");
        let other = sign(&configuration.clone().with("tokenLabel", "SCHLÜSSEL IĞI 鍵"));
        let missing = within(other).run();
        missing.fails(5, &[LABEL]);
        let mut terminal = within(sign(&configuration)).at_terminal();
        let (outcome, screen) = terminal.expect(LABEL).expect(": ").type_line(PIN).finish();
        assert_signed(&outcome);
        (nowhere.stderr, listed, missing.stderr, screen)
    };
    let plain = told("LANG", "C");
    for (name, value) in [
        ("LANG", "de_DE.UTF-8"),
        ("LC_ALL", "tr_TR.UTF-8"),
        ("LC_ALL", "ja_JP.eucJP"),
        ("LC_ALL", "none"),
    ] {
        assert_eq!(told(name, value), plain, "{name}={value}");
    }
}
