//! Connection strings, as the portal, the emulator and people write them.
//!
//! Invariants:
//! 1. No problem text quotes a value that may hold a secret: it names the setting.
//! 2. Whatever was meant, the result is the same three addresses: slashes at the end, hosts with ports, addresses with or without the
//!    account in their path.
//! 3. What is missing is named; nothing is guessed that could lead requests to another account.

use std::collections::BTreeMap;

use azure_core::auth::Secret;
use base64::Engine as _;
use url::{Host, Url};

use super::config::{AzureConfig, ConfigError, Credential, Endpoints, check_account};
use crate::env::Timestamp;

#[cfg(test)]
mod tests;

const SETTING: &str = "AZURE_STORAGE_CONNECTION_STRING";
const COPY: &str =
    "copy the whole connection string from the storage account's `Access keys` page in the portal";
const SAS: &str = "make an account SAS for services blob, queue and table and resource types container and object (`ss=bqt`, `srt=co`)";

/// Settings that are read; names are compared without regard to case.
const KNOWN: [&str; 10] = [
    "AccountKey",
    "AccountName",
    "BlobEndpoint",
    "DefaultEndpointsProtocol",
    "DevelopmentStorageProxyUri",
    "EndpointSuffix",
    "QueueEndpoint",
    "SharedAccessSignature",
    "TableEndpoint",
    "UseDevelopmentStorage",
];

fn problem(text: impl std::fmt::Display, help: &str) -> ConfigError {
    ConfigError::new(format!("{SETTING}: {text}"), help)
}

/// Takes off what env files and secret mounts put around a value: blanks, line ends, a byte order mark, one pair of quotes.
/// Nothing left counts as unset.
pub(super) fn clean(value: &str) -> Result<Option<&str>, ConfigError> {
    let mut text = value;
    loop {
        let before = text.len();
        text = text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        for quote in ['"', '\''] {
            if let Some(inner) = text
                .strip_prefix(quote)
                .and_then(|rest| rest.strip_suffix(quote))
            {
                text = inner;
            }
        }
        if text.len() == before {
            break;
        }
    }
    if text.contains(['\n', '\r', '"', '\'']) {
        return Err(problem(
            "the value holds a line break or a quote in its middle",
            "give it on one line, with no quotes or one pair around the whole",
        ));
    }
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Reads a cleaned connection string.
pub(super) fn parse(text: &str) -> Result<AzureConfig, ConfigError> {
    let settings = Settings::read(text)?;
    if let Some(wanted) = settings.get("UseDevelopmentStorage") {
        if !wanted.eq_ignore_ascii_case("true") {
            return Err(problem("UseDevelopmentStorage can only be `true`", COPY));
        }
        return emulator(settings.get("DevelopmentStorageProxyUri"));
    }
    let named = settings.get("AccountName");
    if let Some(account) = named {
        check_account(&format!("{SETTING}: AccountName"), account)?;
    }
    let (endpoints, account) = endpoints(&settings, named)?;
    let (credential, expires_at) = credential(&settings)?;
    // A signature says by itself whom it speaks for; a key signs with the account's name.
    if account.is_none() && matches!(credential, Credential::Key(_)) {
        return Err(problem("AccountName is missing", COPY));
    }
    Ok(AzureConfig {
        account,
        endpoints,
        credential,
        expires_at,
    })
}

/// The emulator at its usual ports, on this machine or at the host of a proxy address.
fn emulator(proxy: Option<&str>) -> Result<AzureConfig, ConfigError> {
    let Some(proxy) = proxy else {
        return Ok(AzureConfig::emulator("127.0.0.1"));
    };
    let host = Url::parse(proxy)
        .ok()
        .and_then(|url| url.host_str().map(str::to_owned));
    host.map(|host| AzureConfig::emulator(&host))
        .ok_or_else(|| {
            problem(
                "DevelopmentStorageProxyUri is not an address",
                "write it as `http://HOST`",
            )
        })
}

/// The pairs of a connection string.
struct Settings<'a>(BTreeMap<&'static str, &'a str>);

impl<'a> Settings<'a> {
    fn read(text: &'a str) -> Result<Self, ConfigError> {
        let mut settings = BTreeMap::new();
        for (n, part) in text.split(';').map(str::trim).enumerate() {
            if part.is_empty() {
                continue;
            }
            // Only the first `=` separates: keys and signatures end in some of their own.
            let Some((name, value)) = part.split_once('=') else {
                let n = n + 1;
                return Err(problem(format!("part {n} is not `Name=Value`"), COPY));
            };
            let (name, value) = (name.trim(), value.trim());
            let known = KNOWN.iter().find(|known| known.eq_ignore_ascii_case(name));
            let Some(known) = known else {
                // File, web, lake and secondary endpoints are the account's too, and nothing to us.
                if name.to_ascii_lowercase().ends_with("endpoint") {
                    continue;
                }
                return Err(unknown(n + 1, name));
            };
            if value.is_empty() {
                return Err(problem(format!("{known} is empty"), COPY));
            }
            if settings.insert(*known, value).is_some() {
                return Err(problem(format!("{known} is given twice"), COPY));
            }
        }
        Ok(Self(settings))
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).copied()
    }
}

/// The error for a name that is not known; quoted only when it looks like a name and not like a piece of a key.
fn unknown(part: usize, name: &str) -> ConfigError {
    let wordy = name.len() <= 40 && name.chars().all(|c| c.is_ascii_alphabetic());
    let near = KNOWN
        .iter()
        .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)))
        .filter(|known| wordy && strsim::jaro_winkler(known, name) > 0.85);
    match (wordy, near) {
        (true, Some(near)) => problem(
            format!("`{name}` is not a setting; `{near}` is"),
            "correct the name",
        ),
        (true, None) => problem(format!("`{name}` is not a setting"), COPY),
        (false, _) => problem(
            format!("part {part} does not begin with the name of a setting"),
            COPY,
        ),
    }
}

/// The three addresses and the account that they or `named` tell.
fn endpoints(
    settings: &Settings<'_>,
    named: Option<&str>,
) -> Result<(Endpoints, Option<String>), ConfigError> {
    let addresses = ["BlobEndpoint", "QueueEndpoint", "TableEndpoint"];
    let missing: Vec<_> = addresses
        .into_iter()
        .filter(|name| settings.get(name).is_none())
        .collect();
    if missing.len() == addresses.len() {
        let protocol = settings.get("DefaultEndpointsProtocol").unwrap_or("https");
        if !matches!(protocol, "http" | "https") {
            return Err(problem(
                "DefaultEndpointsProtocol must be `http` or `https`",
                COPY,
            ));
        }
        let suffix = settings.get("EndpointSuffix").unwrap_or("core.windows.net");
        let Some(account) = named else {
            return Err(problem(
                "AccountName is missing, and there are no endpoints to tell it",
                COPY,
            ));
        };
        let endpoints = Endpoints::of_account(protocol, account, suffix.trim_matches(['.', '/']));
        if endpoints.all().iter().any(|url| Url::parse(url).is_err()) {
            return Err(problem(
                "EndpointSuffix is not the end of a host name",
                COPY,
            ));
        }
        return Ok((endpoints, Some(account.to_owned())));
    }
    if !missing.is_empty() {
        return Err(problem(
            match missing[..] {
                [one] => format!("{one} is missing"),
                _ => format!("{} are missing", missing.join(" and ")),
            },
            "give BlobEndpoint, QueueEndpoint and TableEndpoint, or none of them: all three services are used",
        ));
    }
    let mut told = named.map(str::to_owned);
    let mut read = |name: &str| -> Result<String, ConfigError> {
        let text = settings.get(name).unwrap_or_default();
        let (url, account) = endpoint(name, text, told.as_deref())?;
        match (&told, account) {
            (Some(told), Some(account)) if *told != account => Err(problem(
                format!("{name} is of account `{account}`, the rest of account `{told}`"),
                "give all settings of one account",
            )),
            (None, Some(account)) => {
                told = Some(account);
                Ok(url)
            }
            (_, _) => Ok(url),
        }
    };
    let endpoints = Endpoints {
        blob: read("BlobEndpoint")?,
        queue: read("QueueEndpoint")?,
        table: read("TableEndpoint")?,
    };
    Ok((endpoints, told))
}

/// One address, and the account it shows.
///
/// An account is in the host (`ACCOUNT.blob.…`, then the path is empty) or in the path (`host:port/ACCOUNT`: the emulator). A host that is an
/// address or a single word can only be the second kind.
fn endpoint(
    name: &str,
    text: &str,
    account: Option<&str>,
) -> Result<(String, Option<String>), ConfigError> {
    let bad = |text: &str, help: &str| Err(problem(format!("{name} {text}"), help));
    let Ok(url) = Url::parse(text) else {
        return bad("is not an address", "write it as `https://HOST`");
    };
    let (Some(host), "http" | "https") = (url.host(), url.scheme()) else {
        return bad(
            "is not an http or https address",
            "write it as `https://HOST`",
        );
    };
    if url.query().is_some() || url.fragment().is_some() || url.password().is_some() {
        return bad(
            "holds more than an address",
            "give the signature in SharedAccessSignature",
        );
    }
    let mut labels = host_labels(&host).into_iter();
    let in_host = match (labels.next(), labels.next()) {
        (Some(first), Some("blob" | "queue" | "table")) => Some(first.to_owned()),
        _ => None,
    };
    let segments: Vec<_> = url
        .path_segments()
        .into_iter()
        .flatten()
        .filter(|segment| !segment.is_empty())
        .collect();
    let base = url.origin().ascii_serialization();
    match (in_host, &segments[..]) {
        (Some(of_host), []) => Ok((base, Some(of_host))),
        (Some(_), [first, ..]) => bad(
            &format!("names `/{first}` inside the account"),
            "give the address of the account itself: containers, queues and tables are chosen by the prefix",
        ),
        (None, [of_path]) => Ok((format!("{base}/{of_path}"), Some((*of_path).to_owned()))),
        (None, []) if host_labels(&host).len() > 1 => Ok((base, None)),
        (None, []) => match account {
            Some(account) => Ok((format!("{base}/{account}"), None)),
            None => bad(
                "does not name the account",
                "write it as `http://HOST:PORT/ACCOUNT`",
            ),
        },
        (None, _) => bad(
            "has more in its path than the account",
            "give the address of the account itself: containers, queues and tables are chosen by the prefix",
        ),
    }
}

/// The parts of a host name; none for an address.
fn host_labels<'a>(host: &Host<&'a str>) -> Vec<&'a str> {
    match host {
        Host::Domain(name) => name.split('.').collect(),
        Host::Ipv4(_) | Host::Ipv6(_) => Vec::new(),
    }
}

/// Key or signature, and the end of a signature.
fn credential(settings: &Settings<'_>) -> Result<(Credential, Option<Timestamp>), ConfigError> {
    match (
        settings.get("SharedAccessSignature"),
        settings.get("AccountKey"),
    ) {
        // Both is what other clients accept too; the signature is the lesser right.
        (Some(sas), _) => signature(sas),
        (None, Some(key)) => {
            let decoded = base64::engine::general_purpose::STANDARD.decode(key);
            if decoded.is_ok_and(|key| !key.is_empty()) {
                Ok((Credential::Key(Secret::new(key.to_owned())), None))
            } else {
                Err(problem("AccountKey is not base64: was it cut short?", COPY))
            }
        }
        (None, None) => Err(problem(
            "AccountKey and SharedAccessSignature are both missing",
            COPY,
        )),
    }
}

/// Checks that a signature is of the account, for all three services, whole, and reads its end.
fn signature(text: &str) -> Result<(Credential, Option<Timestamp>), ConfigError> {
    // A plus sign is a plus sign here: no part of a signature holds a blank.
    let query = text.trim_start_matches('?').replace('+', "%2B");
    let parts: BTreeMap<_, _> = url::form_urlencoded::parse(query.as_bytes()).collect();
    let part = |name: &str| parts.get(name).map(AsRef::as_ref);
    let bad = |text: &str| Err(problem(format!("SharedAccessSignature {text}"), SAS));
    if let Some(resource) = part("sr") {
        let of = match resource {
            "c" => "one container",
            "b" => "one blob",
            _ => "a part of one service",
        };
        return bad(&format!("is limited to {of} (`sr`)"));
    }
    if part("tn").is_some() {
        return bad("is limited to one table (`tn`)");
    }
    if part("sig").is_none_or(str::is_empty) {
        return bad("has no `sig`: was it cut short?");
    }
    for (name, needed, what) in [("ss", "bqt", "service"), ("srt", "co", "resource type")] {
        let has = part(name).unwrap_or_default();
        if let Some(lacks) = needed.chars().find(|c| !has.contains(*c)) {
            return bad(&format!("lacks {what} `{lacks}` (`{name}={has}`)"));
        }
    }
    let expires_at = part("se").and_then(end);
    Ok((Credential::Sas(Secret::new(query.clone())), expires_at))
}

/// The end of a signature: a time, or a day.
fn end(text: &str) -> Option<Timestamp> {
    let day = || {
        let day = text.parse::<jiff::civil::Date>().ok()?;
        jiff::tz::TimeZone::UTC
            .to_timestamp(day.at(0, 0, 0, 0))
            .ok()
    };
    text.parse().ok().or_else(day)
}
