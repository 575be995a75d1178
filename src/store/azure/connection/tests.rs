//! Connection strings however they are written, and what is said about those that cannot be used.

use super::*;

const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const SAS_QUERY: &str =
    "sv=2022-11-02&ss=bqt&srt=sco&sp=rwdlacup&se=2030-01-02T03:04:05Z&sig=ab%3D%3D";

fn resolve(store: &str, text: &str) -> Result<(AzureConfig, String), ConfigError> {
    AzureConfig::resolve(store, Some(text))
}

fn config_of(text: &str) -> AzureConfig {
    resolve("demo", text)
        .unwrap_or_else(|error| panic!("{error}"))
        .0
}

fn refused(text: &str) -> String {
    let error = resolve("demo", text).unwrap_err();
    assert!(!error.help.is_empty());
    let whole = format!("{error:?} {error}");
    for secret in [KEY, "ab%3D", "ab==", "s3cret"] {
        assert!(!whole.contains(secret), "{whole}");
    }
    error.problem
}

fn in_azure(account: &str, suffix: &str) -> Endpoints {
    Endpoints::of_account("https", account, suffix)
}

#[test]
fn an_account_without_connection_string_is_opened_by_identity() {
    let (config, prefix) = AzureConfig::resolve("acct1/demo", None).unwrap();
    assert_eq!(prefix, "demo");
    assert_eq!(config.account(), "acct1");
    assert_eq!(config.credential, Credential::Identity);
    assert_eq!(config.endpoints, in_azure("acct1", "core.windows.net"));
    assert!(!config.is_emulator());
}

#[test]
fn the_account_of_the_emulator_means_its_default_ports() {
    let (config, prefix) = AzureConfig::resolve("devstoreaccount1/demo", None).unwrap();
    assert_eq!(prefix, "demo");
    assert_eq!(
        config.endpoints.all(),
        [
            "http://127.0.0.1:10000/devstoreaccount1",
            "http://127.0.0.1:10001/devstoreaccount1",
            "http://127.0.0.1:10002/devstoreaccount1",
        ]
    );
    assert!(config.is_emulator());
    assert_eq!(
        AzureConfig::resolve("demo", Some("UseDevelopmentStorage=true"))
            .unwrap()
            .0,
        config
    );
    let elsewhere = config_of("UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://box");
    assert_eq!(
        elsewhere.endpoints.queue,
        "http://box:10001/devstoreaccount1"
    );
}

#[test]
fn store_words_that_name_no_store_say_what_to_write() {
    for (store, problem) in [
        ("demo", "names no account"),
        ("", "has no prefix"),
        ("acct1/", "has no prefix"),
        ("a/b/c", "more than one slash"),
        ("Acct/demo", "`Acct` is not the name"),
        ("/demo", "`` is not the name"),
    ] {
        let error = AzureConfig::resolve(store, None).unwrap_err();
        assert!(error.problem.contains(problem), "{store}: {error}");
        assert!(!error.help.is_empty());
    }
}

#[test]
fn two_names_of_the_account_must_agree() {
    let text = format!("AccountName=acct1;AccountKey={KEY}");
    let (config, prefix) = resolve("acct1/demo", &text).unwrap();
    assert_eq!((config.account(), prefix.as_str()), ("acct1", "demo"));
    let error = resolve("acct2/demo", &text).unwrap_err();
    assert!(error.problem.contains("`acct2`") && error.problem.contains("`acct1`"));
    assert!(error.help.contains("--store demo"));
}

#[test]
fn a_key_string_gives_the_three_addresses() {
    let plain = config_of(&format!("AccountName=acct1;AccountKey={KEY}"));
    assert_eq!(plain.endpoints, in_azure("acct1", "core.windows.net"));
    assert_eq!(plain.credential, Credential::Key(Secret::new(KEY)));
    let elsewhere = config_of(&format!(
        "DefaultEndpointsProtocol=https;AccountName=acct1;AccountKey={KEY};EndpointSuffix=core.chinacloudapi.cn;"
    ));
    assert_eq!(
        elsewhere.endpoints,
        in_azure("acct1", "core.chinacloudapi.cn")
    );
    let other_case = config_of(&format!("accountname=acct1; ACCOUNTKEY = {KEY} ;"));
    assert_eq!(other_case, plain);
}

#[test]
fn a_portal_signature_gives_the_same_addresses_however_it_is_written() {
    let expected = in_azure("acct1", "core.windows.net");
    for sas in [SAS_QUERY.to_owned(), format!("?{SAS_QUERY}")] {
        for (slash, port) in [("", ""), ("/", ""), ("/", ":443"), ("//", "")] {
            let of =
                |service: &str| format!("https://acct1.{service}.core.windows.net{port}{slash}");
            let (blob, queue, table) = (of("blob"), of("queue"), of("table"));
            for text in [
                format!(
                    "BlobEndpoint={blob};QueueEndpoint={queue};FileEndpoint=https://acct1.file.core.windows.net/;TableEndpoint={table};SharedAccessSignature={sas}"
                ),
                format!(
                    "SharedAccessSignature={sas};TableEndpoint={table};BlobEndpoint={blob};QueueEndpoint={queue};"
                ),
            ] {
                let config = config_of(&text);
                assert_eq!(config.endpoints, expected);
                assert_eq!(config.account(), "acct1");
                assert_eq!(config.credential, Credential::Sas(Secret::new(SAS_QUERY)));
                assert_eq!(
                    config.expires_at(),
                    Some("2030-01-02T03:04:05Z".parse().unwrap())
                );
            }
        }
    }
}

#[test]
fn a_plus_sign_in_a_signature_stays_one() {
    let raw = SAS_QUERY.replace("ab%3D%3D", "a+b");
    let config = config_of(&format!("AccountName=acct1;SharedAccessSignature={raw}"));
    let Credential::Sas(query) = config.credential else {
        panic!("a signature was given")
    };
    assert!(query.secret().ends_with("sig=a%2Bb"));
}

#[test]
fn a_signature_that_does_not_reach_all_three_services_is_refused_by_name() {
    let with = |sas: &str| refused(&format!("AccountName=acct1;SharedAccessSignature={sas}"));
    assert!(with("sv=2022-11-02&sr=c&sp=rwl&sig=ab%3D").contains("limited to one container"));
    assert!(with("sv=2022-11-02&tn=t&sp=r&sig=ab%3D").contains("limited to one table"));
    assert!(with("sv=1&ss=bq&srt=sco&sig=ab%3D").contains("lacks service `t` (`ss=bq`)"));
    assert!(with("sv=1&ss=bqt&srt=s&sig=ab%3D").contains("lacks resource type `c`"));
    assert!(with("sv=1&ss=bqt&srt=sco").contains("no `sig`"));
}

#[test]
fn emulator_addresses_work_by_host_name_and_with_or_without_account_and_slash() {
    for host in [
        "127.0.0.1:31000",
        "localhost:31000",
        "azurite:10000",
        "[::1]:10000",
        "azurite.local:10000",
    ] {
        let expected = format!("http://{host}/myaccount1");
        for path in ["/myaccount1", "/myaccount1/"] {
            let address = format!("http://{host}{path}");
            let text = format!(
                "AccountName=myaccount1;AccountKey={KEY};BlobEndpoint={address};QueueEndpoint={address};TableEndpoint={address}"
            );
            let config = config_of(&text);
            assert_eq!(config.endpoints.all(), [&expected; 3].map(String::as_str));
            assert!(config.is_emulator());
            assert_eq!(
                config.host_looks_like_account(),
                host.starts_with("azurite.local")
            );
        }
    }
    let bare = "http://[::1]:10000/";
    let config = config_of(&format!(
        "AccountName=myaccount1;AccountKey={KEY};BlobEndpoint={bare};QueueEndpoint={bare};TableEndpoint={bare}"
    ));
    assert_eq!(config.endpoints.blob, "http://[::1]:10000/myaccount1");
}

#[test]
fn what_is_missing_is_named() {
    let endpoint = "BlobEndpoint=https://acct1.blob.core.windows.net";
    for (text, problem) in [
        (format!("AccountKey={KEY}"), "AccountName is missing"),
        (
            "AccountName=acct1".to_owned(),
            "AccountKey and SharedAccessSignature are both missing",
        ),
        (
            format!("{endpoint};SharedAccessSignature={SAS_QUERY}"),
            "QueueEndpoint and TableEndpoint are missing",
        ),
        (
            format!(
                "{endpoint};QueueEndpoint=https://acct1.queue.core.windows.net;AccountName=acct1;AccountKey={KEY}"
            ),
            "TableEndpoint is missing",
        ),
        (
            "AccountName=acct1;AccountKey=".to_owned(),
            "AccountKey is empty",
        ),
        (
            "AccountName=acct1;AccountKey=s3cret!".to_owned(),
            "AccountKey is not base64",
        ),
        (
            format!("AccountName=acct1;AcountKey={KEY}"),
            "`AcountKey` is not a setting; `AccountKey` is",
        ),
        (KEY.to_owned(), "part 1 does not begin"),
        ("s3cret".to_owned(), "part 1 is not `Name=Value`"),
        (
            format!("AccountName=a_b;AccountKey={KEY}"),
            "`a_b` is not the name",
        ),
        (
            "UseDevelopmentStorage=false".to_owned(),
            "can only be `true`",
        ),
    ] {
        let got = refused(&text);
        assert!(got.contains(problem), "{got}");
        assert!(got.starts_with(SETTING), "{got}");
    }
}

#[test]
fn an_address_inside_an_account_is_refused() {
    let with = |blob: &str| {
        refused(&format!(
            "BlobEndpoint={blob};QueueEndpoint=https://acct1.queue.core.windows.net;TableEndpoint=https://acct1.table.core.windows.net;AccountName=acct1;AccountKey={KEY}"
        ))
    };
    assert!(with("https://acct1.blob.core.windows.net/box").contains("BlobEndpoint names `/box`"));
    assert!(with("http://127.0.0.1:1/acct1/box").contains("more in its path"));
    assert!(with("http://127.0.0.1:1/acct2").contains("of account `acct2`"));
    assert!(
        with("https://acct1.blob.core.windows.net/?sig=s3cret").contains("more than an address")
    );
    assert!(with("acct1.blob.core.windows.net").contains("is not an address"));
    assert!(with("ftp://acct1.blob.core.windows.net").contains("not an http"));
}

#[test]
fn what_surrounds_a_value_is_taken_off_and_nothing_counts_as_unset() {
    let bare = format!("AccountName=acct1;AccountKey={KEY}");
    let expected = config_of(&bare);
    for text in [
        format!("\"{bare}\""),
        format!("'{bare}'\n"),
        format!("\u{feff}{bare}\r\n"),
        format!("  \" {bare} \"  "),
    ] {
        assert_eq!(config_of(&text), expected);
    }
    for text in ["", "  ", "\n", "\"\"", "\u{feff}"] {
        let (config, _) = AzureConfig::resolve("acct1/demo", Some(text)).unwrap();
        assert_eq!(config.credential, Credential::Identity);
    }
    assert!(refused(&format!("AccountName=acct1;\nAccountKey={KEY}")).contains("line break"));
    assert!(refused(&format!("AccountName=\"acct1\";AccountKey={KEY}")).contains("quote"));
}

#[test]
fn debug_texts_hold_no_secret() {
    for text in [
        format!("AccountName=acct1;AccountKey={KEY}"),
        format!("AccountName=acct1;SharedAccessSignature={SAS_QUERY}"),
    ] {
        let debug = format!("{:?}", config_of(&text));
        assert!(!debug.contains(KEY) && !debug.contains("sig="), "{debug}");
    }
}

#[test]
fn the_end_of_a_signature_may_be_a_day() {
    let day = end("2030-01-02").unwrap();
    let time = end("2030-01-02T00:00:01Z").unwrap();
    assert_eq!(time.duration_since(day), jiff::SignedDuration::from_secs(1));
    assert_eq!(end("soon"), None);
}
