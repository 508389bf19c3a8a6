//! The shape of what a service takes, as a JSON Schema, found by asking its type what it reads.
//!
//! A type tells serde, step by step, what it expects next. So it is read here from nothing: what it
//! asks for is noted, and it gets the simplest value of that kind, which most types take. One that
//! refuses it (a date that is written as a text) ends the reading; so each field of the arguments
//! comes first once, and what is known stays known. What no type says by asking is left open, `{}`:
//! the checks that count are serde's.
//!
//! ```text
//! struct Take { item: i32, note: Option<String> }
//!   asks for an object with item and note   "properties": {"item": …, "note": …}
//!   asks for an i32                         {"type": "integer", "minimum": …, "maximum": …}
//!   asks for an option, then for a text     {"anyOf": [{"type": "string"}, {"type": "null"}]}
//!   item is left out: "missing field"       "required": ["item"]
//!   note is left out: it is read            not required
//! ```

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice::IterMut;

use serde::Deserializer;
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde_json::{Map, Value, json};

/// Types may hold themselves: further down than this nothing is asked for.
const DEEP: usize = 4;

/// The shape of a type.
pub(crate) fn of<A: DeserializeOwned>() -> Value {
    let mut shape = json!({});
    let _ = read::<A>(&mut shape, Turn::default());
    let Some(names) = properties(&shape) else { return shape };
    for first in 1..names.len() {
        let _ = read::<A>(&mut shape, Turn { first, left_out: None });
    }
    let required: Vec<&String> = names.iter().filter(|name| is_required::<A>(&mut shape, name)).collect();
    if !required.is_empty() {
        shape["required"] = json!(required);
    }
    shape
}

/// Whether it is that of an object with fields.
pub(crate) fn has_fields(shape: &Value) -> bool {
    shape["properties"].is_object()
}

/// The names of an object's fields.
fn properties(shape: &Value) -> Option<Vec<String>> {
    Some(shape["properties"].as_object()?.keys().cloned().collect())
}

/// Whether arguments without this field are refused. Where another one is in the way of finding
/// out, whatever may not be null is said to be required.
fn is_required<A: DeserializeOwned>(shape: &mut Value, name: &str) -> bool {
    match read::<A>(shape, Turn { first: 0, left_out: Some(name) }) {
        Ok(()) => false,
        Err(Refused::Missing) => true,
        Err(Refused::Otherwise) => shape["properties"][name]["anyOf"].is_null(),
    }
}

/// Reads a type once. Its code may panic about values that nobody has sent.
fn read<A: DeserializeOwned>(shape: &mut Value, turn: Turn<'_>) -> Result<(), Refused> {
    let reading = || A::deserialize(Reader { shape, depth: 0, turn }).map(drop);
    catch_unwind(AssertUnwindSafe(reading)).unwrap_or(Err(Refused::Otherwise))
}

/// Why a type could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// A field was left out that it needs.
    Missing,
    Otherwise,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing was sent")
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(_: T) -> Refused {
        Refused::Otherwise
    }

    fn missing_field(_: &'static str) -> Refused {
        Refused::Missing
    }
}

/// In which order the arguments' own fields are given.
#[derive(Debug, Clone, Copy, Default)]
struct Turn<'a> {
    first: usize,
    left_out: Option<&'a str>,
}

/// Notes what is asked for, and gives the simplest value of it.
struct Reader<'a> {
    shape: &'a mut Value,
    depth: usize,
    turn: Turn<'a>,
}

impl<'a> Reader<'a> {
    /// One for a part of what this one reads.
    fn part(shape: &'a mut Value, depth: usize) -> Reader<'a> {
        Reader { shape, depth: depth + 1, turn: Turn::default() }
    }

    fn is_deep(&self) -> bool {
        self.depth >= DEEP
    }
}

/// Values that have no parts: what asks for one, how it is given, and its shape.
macro_rules! simple {
    ($($method:ident => $visit:ident($($value:expr)?), $shape:tt;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
            *self.shape = json!($shape);
            visitor.$visit($($value)?)
        })*
    };
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Refused;

    simple! {
        deserialize_any => visit_unit(), {};
        deserialize_ignored_any => visit_unit(), {};
        deserialize_unit => visit_unit(), { "type": "null" };
        deserialize_bool => visit_bool(false), { "type": "boolean" };
        deserialize_i8 => visit_i64(1), { "type": "integer", "minimum": i8::MIN, "maximum": i8::MAX };
        deserialize_i16 => visit_i64(1), { "type": "integer", "minimum": i16::MIN, "maximum": i16::MAX };
        deserialize_i32 => visit_i64(1), { "type": "integer", "minimum": i32::MIN, "maximum": i32::MAX };
        deserialize_i64 => visit_i64(1), { "type": "integer", "format": "int64" };
        deserialize_i128 => visit_i64(1), { "type": "integer" };
        deserialize_u8 => visit_u64(1), { "type": "integer", "minimum": 0, "maximum": u8::MAX };
        deserialize_u16 => visit_u64(1), { "type": "integer", "minimum": 0, "maximum": u16::MAX };
        deserialize_u32 => visit_u64(1), { "type": "integer", "minimum": 0, "maximum": u32::MAX };
        deserialize_u64 => visit_u64(1), { "type": "integer", "minimum": 0 };
        deserialize_u128 => visit_u64(1), { "type": "integer", "minimum": 0 };
        deserialize_f32 => visit_f64(1.0), { "type": "number" };
        deserialize_f64 => visit_f64(1.0), { "type": "number" };
        deserialize_char => visit_char('a'), { "type": "string", "minLength": 1, "maxLength": 1 };
        deserialize_str => visit_str(""), { "type": "string" };
        deserialize_string => visit_str(""), { "type": "string" };
        deserialize_identifier => visit_str(""), { "type": "string" };
        deserialize_bytes => visit_byte_buf(Vec::new()), {};
        deserialize_byte_buf => visit_byte_buf(Vec::new()), {};
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        if self.is_deep() {
            return visitor.visit_none();
        }
        let mut some = json!({});
        let answer = visitor.visit_some(Reader::part(&mut some, self.depth));
        *self.shape = json!({ "anyOf": [some, { "type": "null" }] });
        answer
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let mut items = [json!({})];
        let given = usize::from(!self.is_deep());
        let answer = visitor.visit_seq(Items { shapes: items[..given].iter_mut(), depth: self.depth });
        let [items] = items;
        *self.shape = json!({ "type": "array", "items": items });
        answer
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Refused> {
        let mut items = vec![json!({}); length];
        let answer = visitor.visit_seq(Items { shapes: items.iter_mut(), depth: self.depth });
        *self.shape =
            json!({ "type": "array", "prefixItems": items, "minItems": length, "maxItems": length });
        answer
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let mut value = json!({});
        let pair = Pair { is_given: self.is_deep(), value: &mut value, depth: self.depth };
        let answer = visitor.visit_map(pair);
        *self.shape = json!({ "type": "object", "additionalProperties": value });
        answer
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let Reader { shape, depth, turn } = self;
        if !has_fields(shape) {
            let open: Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
            *shape = json!({ "type": "object", "properties": open });
        }
        match shape["properties"].as_object_mut() {
            Some(shapes) => visitor.visit_map(Fields { names, shapes, depth, turn, given: 0, last: "" }),
            None => Err(Refused::Otherwise),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        // Those that hold something are written as an object with their name.
        let one = json!({ "type": "object", "propertyNames": { "enum": names }, "minProperties": 1, "maxProperties": 1 });
        *self.shape = json!({ "anyOf": [{ "enum": names }, one] });
        match names.first() {
            Some(first) => visitor.visit_enum(Variant(first)),
            None => Err(Refused::Otherwise),
        }
    }
}

/// The items of a list, as many as there are shapes.
struct Items<'a> {
    shapes: IterMut<'a, Value>,
    depth: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refused> {
        let Some(shape) = self.shapes.next() else { return Ok(None) };
        seed.deserialize(Reader::part(shape, self.depth)).map(Some)
    }
}

/// The one pair of a map.
struct Pair<'a> {
    is_given: bool,
    value: &'a mut Value,
    depth: usize,
}

impl<'de> MapAccess<'de> for Pair<'_> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Refused> {
        if std::mem::replace(&mut self.is_given, true) {
            return Ok(None);
        }
        let mut key = json!({});
        seed.deserialize(Reader::part(&mut key, self.depth)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Refused> {
        seed.deserialize(Reader::part(self.value, self.depth))
    }
}

/// The fields of an object, in the order of a turn.
struct Fields<'a> {
    names: &'static [&'static str],
    shapes: &'a mut Map<String, Value>,
    depth: usize,
    turn: Turn<'a>,
    given: usize,
    last: &'static str,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Refused> {
        while self.given < self.names.len() {
            let name = self.names[(self.given + self.turn.first) % self.names.len()];
            self.given += 1;
            if self.turn.left_out != Some(name) {
                self.last = name;
                return seed.deserialize(StrDeserializer::new(name)).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Refused> {
        let shape = self.shapes.entry(self.last).or_insert_with(|| json!({}));
        seed.deserialize(Reader::part(shape, self.depth))
    }
}

/// A variant, by its name. What it may hold is not asked for: it may hold itself.
struct Variant(&'static str);

impl<'de> EnumAccess<'de> for Variant {
    type Error = Refused;
    type Variant = Variant;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Variant), Refused> {
        Ok((seed.deserialize(StrDeserializer::<Refused>::new(self.0))?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant {
    type Error = Refused;

    fn unit_variant(self) -> Result<(), Refused> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Refused> {
        Err(Refused::Otherwise)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Refused> {
        Err(Refused::Otherwise)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Refused> {
        Err(Refused::Otherwise)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[allow(dead_code)]
    struct Take {
        item: i32,
        note: Option<String>,
        #[serde(default)]
        times: u8,
        pair: (bool, f64),
        parts: Vec<Part>,
        by_name: BTreeMap<String, i64>,
    }

    #[derive(Deserialize)]
    #[allow(dead_code)]
    struct Part {
        colour: Colour,
        within: Option<Box<Part>>,
    }

    #[derive(Deserialize)]
    enum Colour {
        Red,
        #[allow(dead_code)]
        Mixed(Vec<Colour>),
    }

    /// Takes no text that nobody has sent.
    #[derive(Deserialize)]
    #[serde(try_from = "String")]
    struct Day;

    impl TryFrom<String> for Day {
        type Error = String;

        fn try_from(text: String) -> Result<Day, String> {
            if text.is_empty() { Err("no day".to_owned()) } else { Ok(Day) }
        }
    }

    #[derive(Deserialize)]
    #[allow(dead_code)]
    struct Dated {
        day: Day,
        item: i32,
        until: Option<i32>,
    }

    #[derive(Deserialize)]
    struct Wrapped(#[allow(dead_code)] Day);

    #[test]
    fn fields_have_the_shapes_that_their_types_ask_for() {
        let shape = of::<Take>();
        let fields = &shape["properties"];
        assert_eq!(fields["item"], json!({ "type": "integer", "minimum": i32::MIN, "maximum": i32::MAX }));
        assert_eq!(fields["note"], json!({ "anyOf": [{ "type": "string" }, { "type": "null" }] }));
        assert_eq!(fields["times"], json!({ "type": "integer", "minimum": 0, "maximum": 255 }));
        assert_eq!(fields["pair"]["prefixItems"], json!([{ "type": "boolean" }, { "type": "number" }]));
        let number = json!({ "type": "integer", "format": "int64" });
        assert_eq!(fields["by_name"], json!({ "type": "object", "additionalProperties": number }));
        let part = &fields["parts"]["items"];
        assert_eq!(part["properties"]["colour"]["anyOf"][0], json!({ "enum": ["Red", "Mixed"] }));
        assert_eq!(part["properties"]["within"]["anyOf"][0]["type"], "object");
        assert_eq!(shape["required"], json!(["by_name", "item", "pair", "parts"]));
        assert!(has_fields(&shape));
    }

    #[test]
    fn a_field_that_takes_nothing_simple_hides_no_other() {
        let shape = of::<Dated>();
        assert_eq!(shape["properties"]["day"], json!({ "type": "string" }));
        assert_eq!(shape["properties"]["item"]["type"], "integer");
        assert_eq!(shape["required"], json!(["day", "item"]));
        assert_eq!(of::<Wrapped>(), json!({ "type": "string" }));
    }

    #[test]
    fn what_has_no_fields_is_said_as_it_is() {
        assert_eq!(of::<()>(), json!({ "type": "null" }));
        assert_eq!(of::<Vec<String>>(), json!({ "type": "array", "items": { "type": "string" } }));
        assert_eq!(of::<Value>(), json!({}));
        assert!(!has_fields(&of::<BTreeMap<String, i32>>()));
        assert!(has_fields(&json!({ "type": "object", "properties": {} })));
    }
}
