//! The OpenAPI document of a component, from its services: what a client in another language, or
//! `curl`, needs to know.
//!
//! The shapes of arguments are what their types ask for (see `shape`). Those of answers are left
//! open: a type that is only written says nothing before there is a value of it.
//!
//! ```text
//! /services/take   post   headers of the contract, {"item": integer} ─▶ 200 JSON, or a problem of each status with its reasons
//! /status          get    ─▶ 200 JSON
//! ```

use serde_json::{Map, Value, json};

use crate::matrix::{Declared, kind};
use crate::wire;

/// What a service may be answered, besides 200: a status, its reasons, and what they have in
/// common.
const PROBLEMS: [(u16, &[&str], &str); 9] = [
    (400, &["arguments", "failed"], "the arguments do not fit, or the service refuses"),
    (401, &["token"], "no token, a wrong one, or a client's where a component's is needed"),
    (404, &["service", "path"], "there is no such thing"),
    (
        409,
        &["conflict", "ancestor", "closed-sibling", "running", "ended", "closed"],
        "something is in the way; nothing was done",
    ),
    (413, &["size"], "more than 4 MiB"),
    (422, &["arguments", "key"], "another call of the same name, or another request with the same key"),
    (
        503,
        &["away", "database", "fenced", "unknown", "journal", "defect"],
        "a component or its database cannot be reached, or has failed",
    ),
    (504, &["deadline"], "the time is over"),
    (508, &["depth"], "calls within calls, too deep"),
];

/// The document, from services and the shapes of what they take.
pub(crate) fn document(component: &str, services: &[(&Declared, &Value)], has_tokens: bool) -> Value {
    let mut paths = Map::new();
    for (service, takes) in services {
        paths.insert(format!("/services/{}", service.name), json!({ "post": operation(service, takes) }));
    }
    paths.insert("/status".to_owned(), json!({ "get": status() }));
    let mut document = json!({
        "openapi": "3.1.0",
        "info": { "title": component, "version": "1" },
        "paths": paths,
        "components": { "parameters": parameters(), "responses": problems(), "schemas": { "Problem": problem() } },
    });
    if has_tokens {
        document["components"]["securitySchemes"] =
            json!({ "bearer": { "type": "http", "scheme": "bearer" } });
        document["security"] = json!([{ "bearer": [] }]);
    }
    document
}

fn operation(service: &Declared, takes: &Value) -> Value {
    let mut responses = Map::new();
    responses.insert(
        "200".to_owned(),
        json!({
            "description": "the service's answer",
            "headers": { title(wire::GENERATION): {
                "description": "grows with each start of the component",
                "schema": { "type": "integer" },
            } },
            "content": { "application/json": { "schema": {} } },
        }),
    );
    for (status, ..) in PROBLEMS {
        responses.insert(status.to_string(), json!({ "$ref": format!("#/components/responses/{status}") }));
    }
    let names = HEADERS.iter().map(|(name, ..)| title(name));
    let parameters: Vec<Value> =
        names.map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })).collect();
    json!({
        "operationId": service.name,
        "description": kind(service),
        "parameters": parameters,
        "requestBody": { "required": true, "content": { "application/json": { "schema": takes } } },
        "responses": responses,
    })
}

fn status() -> Value {
    json!({
        "operationId": "composite-status",
        "description": "open roots, what is in doubt or parked, and the conflict matrix",
        "responses": {
            "200": { "description": "the status", "content": { "application/json": { "schema": {} } } },
            "401": { "$ref": "#/components/responses/401" },
        },
    })
}

/// The headers of a call: name, type, meaning.
const HEADERS: [(&str, &str, &str); 6] = [
    (
        wire::IDEMPOTENCY_KEY,
        "string",
        "A client's name for its request, where a root begins: asked again, the stored answer comes back.",
    ),
    (wire::DEADLINE, "integer", "Milliseconds that are left; 10000 if nothing is said, at most 60000."),
    (
        wire::ROOT,
        "string",
        "Between components: the root that the call is part of. Without it a root begins.",
    ),
    (wire::PARENT, "string", "Between components: the component that calls."),
    (wire::CALL, "string", "Between components: the call, the same when it is sent again."),
    (
        wire::ANCESTORS,
        "string",
        "Between components: the calls that it is part of, the root's first, with commas.",
    ),
];

fn parameters() -> Value {
    let parameter = |(name, kind, meaning): &(&str, &str, &str)| {
        let name = title(name);
        let value =
            json!({ "name": name, "in": "header", "description": meaning, "schema": { "type": kind } });
        (name, value)
    };
    Value::Object(HEADERS.iter().map(parameter).collect())
}

fn problems() -> Value {
    let response = |(status, reasons, meaning): &(u16, &[&str], &str)| {
        let value = json!({
            "description": format!("{meaning} (reason: {})", reasons.join(", ")),
            "content": { "application/problem+json": { "schema": { "allOf": [
                { "$ref": "#/components/schemas/Problem" },
                { "properties": { "status": { "const": status }, "reason": { "enum": reasons } } },
            ] } } },
        });
        (status.to_string(), value)
    };
    Value::Object(PROBLEMS.iter().map(response).collect())
}

fn problem() -> Value {
    json!({
        "type": "object",
        "required": ["status", "reason", "detail"],
        "properties": {
            "status": { "type": "integer" },
            "reason": { "type": "string", "description": "for programs" },
            "detail": { "type": "string", "description": "for people" },
            "holder": { "type": "string", "description": "the root whose lock is in the way" },
            "item": { "type": "string", "description": "what that lock is about" },
            "began": { "type": "boolean", "description": "something of the call may be left elsewhere" },
        },
    })
}

/// A header's name as people write it; they are compared without case.
fn title(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    };
    name.split('-').map(word).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(name: &str) -> Declared {
        Declared { name: name.to_owned(), has_item: false, reads: false, has_undo: true, begins_only: false }
    }

    /// All `$ref`s of a value.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_service_has_a_path_and_every_reference_leads_somewhere() {
        let (take, other, takes) = (declared("take"), declared("a.b"), json!({ "type": "integer" }));
        let document = document("stock", &[(&take, &takes), (&other, &takes)], false);
        for name in ["take", "a.b"] {
            let operation = &document["paths"][format!("/services/{name}")]["post"];
            assert_eq!(operation["operationId"], name);
            assert_eq!(operation["requestBody"]["content"]["application/json"]["schema"], takes);
            assert_eq!(operation["parameters"].as_array().map(Vec::len), Some(HEADERS.len()));
            assert_eq!(operation["responses"].as_object().map(Map::len), Some(1 + PROBLEMS.len()));
        }
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            let target = document.pointer(reference.trim_start_matches('#'));
            assert!(target.is_some(), "{reference} leads nowhere");
        }
    }

    #[test]
    fn tokens_are_asked_for_where_there_are_some() {
        assert_eq!(document("stock", &[], false)["security"], Value::Null);
        let document = document("stock", &[], true);
        assert_eq!(document["security"][0]["bearer"], json!([]));
        assert_eq!(document["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
    }

    #[test]
    fn the_problems_are_those_of_the_contract() {
        let contract = include_str!("../../../docs/composite-wire.md");
        let rows = contract.lines().filter_map(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let status: u16 = cells.next()?.parse().ok()?;
            let reasons = cells.next()?.split(',').map(|reason| reason.trim().trim_matches('`').to_owned());
            Some((status, reasons.collect::<Vec<_>>()))
        });
        let mut known: Vec<(u16, String)> = PROBLEMS
            .iter()
            .flat_map(|(status, reasons, _)| reasons.iter().map(|reason| (*status, (*reason).to_owned())))
            .collect();
        let mut said: Vec<(u16, String)> = rows
            .flat_map(|(status, reasons)| reasons.into_iter().map(move |reason| (status, reason)))
            // These are told to people who settle and resume.
            .filter(|(_, reason)| !matches!(reason.as_str(), "root" | "slot"))
            .collect();
        known.sort();
        said.sort();
        assert_eq!(known, said);
    }
}
