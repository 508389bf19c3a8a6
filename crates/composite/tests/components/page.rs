//! The status page in a browser without a window: Chromium, spoken to by its debugging protocol
//! over a pipe.
//!
//! Where there is no Chromium the test says so on the terminal, and has tested nothing.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::{Components, Failure, post};

/// Names under which it may be found.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// How long a page may take to show something: a safety net, far above what it takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn chromium() -> Option<&'static str> {
    PROGRAMS.into_iter().find(|program| {
        let mut asked = Command::new(program);
        asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        asked.status().is_ok_and(|status| status.success())
    })
}

/// A browser with one page.
struct Browser {
    process: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    count: u64,
    _profile: tempfile::TempDir,
}

impl Browser {
    fn open(program: &str, url: &str) -> Result<Browser, Failure> {
        let profile = tempfile::tempdir()?;
        // It reads what it is told from descriptor 3 and answers on 4.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 1>&2 </dev/null", program])
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-dev-shm-usage", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let input = process.stdin.take().ok_or("no input")?;
        let output = process.stdout.take().ok_or("no output")?;
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { return };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser { process, input, messages, session: None, count: 0, _profile: profile };
        let target = browser.tell("Target.createTarget", json!({ "url": url }))?["targetId"].clone();
        let attach = json!({ "targetId": target, "flatten": true });
        let session = browser.tell("Target.attachToTarget", attach)?["sessionId"].clone();
        browser.session = session.as_str().map(str::to_owned);
        Ok(browser)
    }

    fn tell(&mut self, method: &str, parameters: Value) -> Result<Value, Failure> {
        self.count += 1;
        let mut message = json!({ "id": self.count, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input.write_all(format!("{message}\0").as_bytes())?;
        loop {
            let mut answer = self.messages.recv_timeout(PATIENCE)?;
            if answer["id"] == self.count {
                assert_eq!(answer["error"], Value::Null, "{method}");
                return Ok(answer["result"].take());
            }
        }
    }

    /// The value of an expression in the page.
    fn value(&mut self, expression: &str) -> Result<Value, Failure> {
        let evaluate = json!({ "expression": expression, "returnByValue": true });
        let mut result = self.tell("Runtime.evaluate", evaluate)?;
        match result["exceptionDetails"].is_null() {
            true => Ok(result["result"]["value"].take()),
            false => Err(format!("{expression}: {}", result["exceptionDetails"]).into()),
        }
    }

    /// Waits until an expression has a value; while a page is loading it may have none.
    fn wait(&mut self, expression: &str, expected: &Value) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            let value = self.value(expression);
            if value.as_ref().is_ok_and(|value| value == expected) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("{expression} is {value:?} and not {expected}").into());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn show_token(&mut self, token: &str) -> Result<(), Failure> {
        let type_in = format!("at('token').value = {}; at('ask').requestSubmit()", json!(token));
        self.value(&type_in).map(drop)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_page_asks_for_a_token_shows_what_is_open_and_how_to_end_it() -> Result<(), Failure> {
    let Some(program) = chromium() else {
        // Not by a macro of the standard library, whose output tests swallow.
        let said = "\nSKIPPED: the status page is not tested, since there is no Chromium here (Debian's package chromium)\n";
        return Ok(std::io::stderr().write_all(said.as_bytes())?);
    };
    let components = Components::start_with(Some("of-peers\nof-clients\n"), false)?;
    let stock = components.address("stock");
    // A name that would be markup, and that a shell would take apart.
    let root = "<img/src=x/onerror=document.title='owned'>";
    let bearer = ("Authorization", "Bearer of-peers");
    let headers = [("Cognate-Root", root), ("Cognate-Parent", "nobody"), ("Cognate-Call", "1.1"), bearer];
    assert_eq!(post(stock, "/services/take", &headers, &json!({ "item": 1 }))?.0, 200);
    let prepare = json!({ "roots": [{ "root": root, "parent": "nobody", "calls": 1 }] });
    assert_eq!(post(stock, "/composite/prepare", &[bearer], &prepare)?.1["roots"][0]["vote"], "yes");

    let mut browser = Browser::open(program, &format!("http://{stock}/"))?;
    browser.wait("at('ask').hidden", &json!(false))?;
    browser.show_token("wrong")?;
    browser.wait("at('state').textContent", &json!("This token is not the one."))?;
    browser.show_token("of-peers")?;
    browser.wait("at('shown').hidden", &json!(false))?;
    assert_eq!(browser.value("document.title")?, "stock");
    assert_eq!(browser.value("document.images.length")?, 0);
    assert_eq!(browser.value("[at('open').textContent, at('in_doubt').textContent]")?, json!(["1", "1"]));
    assert_eq!(
        browser.value("[...at('roots').querySelectorAll('td')].slice(0, 2).map(cell => cell.textContent)")?,
        json!([root, "in-doubt"])
    );
    assert_eq!(browser.value("at('matrix').querySelectorAll('tr').length")?, 3);
    // The token is nowhere but in the page's memory.
    assert_eq!(
        browser.value("localStorage.length + sessionStorage.length + document.cookie.length")?,
        json!(0)
    );

    let commands =
        browser.value("[...at('roots').querySelectorAll('code')].map(code => code.textContent)")?;
    let abort = commands[1].as_str().ok_or("no command")?;
    let run = Command::new("sh").args(["-c", abort]).env("TOKEN", "of-peers").output()?;
    assert!(String::from_utf8_lossy(&run.stdout).contains("\"done\""), "{abort}: {run:?}");
    // It is live: nobody reloads it.
    browser.wait("at('open').textContent", &json!("0"))?;
    browser.wait("at('in_doubt').className", &json!(""))?;

    let parked = json!({
        "component": "stock", "generation": 1, "roots": [], "in_doubt": 0, "undo_backlog": 1, "matrix": [],
        "parked": [{ "root": root, "call": "1", "slot": 7, "why": "<b>why</b>", "resume": "" }],
    });
    let shown = browser.value(&format!("show({parked}); at('parked').querySelector('code').textContent"))?;
    let resume = format!(
        "curl -X POST http://{stock}/composite/resume -H \"Authorization: Bearer $TOKEN\" -H 'Content-Type: application/json' -d '{{\"slot\":7}}'"
    );
    assert_eq!(shown, json!(resume));
    assert_eq!(browser.value("at('parked').querySelectorAll('b, img').length")?, 0);

    browser.tell("Page.reload", json!({}))?;
    browser.wait("at('state').textContent", &json!("A token is needed."))
}
