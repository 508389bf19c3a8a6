//! Arrays as text: `{1,2,NULL}`, `{{"a b",c},{d,e}}`, `[0:1]={7,8}`.

use super::array::{MAX_DIMENSIONS, check_bounds};
use super::bounds::Meter;
use super::{Array, Datum, Dimension, FormatContext, Type};
use crate::error::{SqlError, sqlstate};

/// Appends the text form.
pub(super) fn write(
    array: &Array,
    context: &FormatContext,
    out: &mut Vec<u8>,
    meter: &mut Meter,
) -> Result<(), SqlError> {
    if array.dimensions.is_empty() {
        out.extend_from_slice(b"{}");
        return Ok(());
    }
    if array.dimensions.iter().any(|d| d.lower != 1) {
        for dimension in &array.dimensions {
            let upper = i64::from(dimension.lower) + dimension.length as i64 - 1;
            out.extend_from_slice(format!("[{}:{upper}]", dimension.lower).as_bytes());
        }
        out.push(b'=');
    }
    write_level(array, &array.dimensions, &array.elements, context, out, meter)
}

fn write_level(
    array: &Array,
    dimensions: &[Dimension],
    elements: &[Datum],
    context: &FormatContext,
    out: &mut Vec<u8>,
    meter: &mut Meter,
) -> Result<(), SqlError> {
    out.push(b'{');
    if let [_] = dimensions {
        for (i, element) in elements.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            write_element(array, element, context, out, meter)?;
        }
    } else if let Some((first, rest)) = dimensions.split_first() {
        for (i, part) in elements.chunks((elements.len() / first.length.max(1)).max(1)).enumerate() {
            if i > 0 {
                out.push(b',');
            }
            write_level(array, rest, part, context, out, meter)?;
        }
    }
    out.push(b'}');
    Ok(())
}

fn write_element(
    array: &Array,
    element: &Datum,
    context: &FormatContext,
    out: &mut Vec<u8>,
    meter: &mut Meter,
) -> Result<(), SqlError> {
    let start = out.len();
    if element.is_null() {
        out.extend_from_slice(b"NULL");
        return meter.wrote(out.len() - start, out);
    }
    element.write(Type::new(array.element), context, out, meter)?;
    let text = &out[start..];
    let needs_quotes = text.is_empty()
        || text.eq_ignore_ascii_case(b"null")
        || text
            .iter()
            .any(|b| matches!(b, b'{' | b'}' | b'"' | b',' | b'\\') || b.is_ascii_whitespace() || *b == 0x0b);
    if needs_quotes {
        let text = out.split_off(start);
        out.push(b'"');
        for byte in text {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(byte);
        }
        out.push(b'"');
    }
    meter.wrote(out.len() - start, out)
}

#[cold]
fn too_many_dimensions(count: usize) -> SqlError {
    SqlError::new(
        sqlstate::PROGRAM_LIMIT_EXCEEDED,
        format!("number of array dimensions ({count}) exceeds the maximum allowed ({MAX_DIMENSIONS})"),
    )
}

/// Reads the text form of an array of `element`. 22P02, and what the elements' texts are at fault
/// for.
pub(super) fn parse(text: &str, element: Type, context: &FormatContext) -> Result<Array, SqlError> {
    let mut reader =
        Reader { text, at: 0, element, context, elements: vec![], lengths: vec![], meter: Meter::default() };
    reader.skip_blanks();
    let declared = reader.declared_dimensions()?;
    if reader.peek() != Some(b'{') {
        return Err(reader.malformed("Array value must start with \"{\" or dimension information."));
    }
    reader.level(0)?;
    reader.skip_blanks();
    if reader.at < text.len() {
        return Err(reader.malformed("Junk after closing right brace."));
    }
    let mut lengths: Vec<usize> = reader.lengths.iter().map(|l| l.unwrap_or(0)).collect();
    if reader.elements.is_empty() {
        lengths.clear();
    }
    let dimensions: Vec<Dimension> = match declared {
        None => lengths.iter().map(|&length| Dimension { length, lower: 1 }).collect(),
        Some(declared) => {
            if declared.iter().map(|d| d.length).ne(lengths.iter().copied()) {
                return Err(reader.malformed("Specified array dimensions do not match array contents."));
            }
            check_bounds(&declared)?;
            declared
        }
    };
    Ok(Array { element: element.id, dimensions, elements: reader.elements })
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    element: Type,
    context: &'a FormatContext,
    elements: Vec<Datum>,
    /// Length of each level, once its first array is complete.
    lengths: Vec<Option<usize>>,
    meter: Meter,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_whitespace() || b == 0x0b) {
            self.at += 1;
        }
    }

    #[cold]
    fn malformed(&self, detail: &str) -> SqlError {
        SqlError::new(
            sqlstate::INVALID_TEXT_REPRESENTATION,
            format!("malformed array literal: \"{}\"", self.text),
        )
        .with_detail(detail)
    }

    /// `[1:2][0:3]=`.
    fn declared_dimensions(&mut self) -> Result<Option<Vec<Dimension>>, SqlError> {
        let mut dimensions = Vec::new();
        while self.peek() == Some(b'[') {
            let end = self.text[self.at..]
                .find(']')
                .ok_or_else(|| self.malformed("Missing \"]\" after array dimensions."))?;
            let body = &self.text[self.at + 1..self.at + end];
            if dimensions.len() == MAX_DIMENSIONS {
                return Err(too_many_dimensions(MAX_DIMENSIONS + 1));
            }
            // Blanks may stand between dimensions, but not within one.
            let number = |text: &str| {
                text.parse::<i32>().map_err(|_| {
                    self.malformed("\"[\" must introduce explicitly-specified array dimensions.")
                })
            };
            let (lower, upper) = match body.split_once(':') {
                Some((lower, upper)) => (number(lower)?, number(upper)?),
                None => (1, number(body)?),
            };
            let length = i64::from(upper) - i64::from(lower) + 1;
            let length = usize::try_from(length).ok().filter(|length| *length > 0).ok_or_else(|| {
                SqlError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, "upper bound cannot be less than lower bound")
            })?;
            dimensions.push(Dimension { length, lower });
            self.at += end + 1;
            self.skip_blanks();
        }
        if dimensions.is_empty() {
            return Ok(None);
        }
        if self.peek() != Some(b'=') {
            return Err(self.malformed("Missing \"=\" after array dimensions."));
        }
        self.at += 1;
        self.skip_blanks();
        Ok(Some(dimensions))
    }

    /// One pair of braces and what is between them.
    fn level(&mut self, depth: usize) -> Result<(), SqlError> {
        if depth >= MAX_DIMENSIONS {
            return Err(too_many_dimensions(depth + 1));
        }
        if self.lengths.len() == depth {
            self.lengths.push(None);
        }
        self.at += 1;
        self.skip_blanks();
        let mut count = 0;
        if self.peek() == Some(b'}') {
            if depth > 0 {
                return Err(self.malformed("Unexpected \"}\" character."));
            }
            self.at += 1;
            return self.complete(depth, 0);
        }
        loop {
            self.skip_blanks();
            let nested = self.peek() == Some(b'{');
            // All members at one level are arrays, or none is.
            if nested != (self.lengths.len() > depth + 1)
                && (count > 0 || self.lengths[depth].is_some() || !nested)
            {
                return Err(
                    self.malformed("Multidimensional arrays must have sub-arrays with matching dimensions.")
                );
            }
            if nested {
                self.level(depth + 1)?
            } else {
                self.item()?
            }
            count += 1;
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return self.complete(depth, count);
                }
                Some(_) => return Err(self.malformed("Unexpected array element.")),
                None => return Err(self.malformed("Unexpected end of input.")),
            }
        }
    }

    fn complete(&mut self, depth: usize, count: usize) -> Result<(), SqlError> {
        match self.lengths[depth] {
            Some(length) if length != count => {
                Err(self.malformed("Multidimensional arrays must have sub-arrays with matching dimensions."))
            }
            _ => {
                self.lengths[depth] = Some(count);
                Ok(())
            }
        }
    }

    /// Takes the byte behind a backslash, and both.
    fn escaped(&mut self) -> Result<u8, SqlError> {
        let byte = self.text.as_bytes().get(self.at + 1).copied();
        self.at += 2;
        byte.ok_or_else(|| self.malformed("Unexpected end of input."))
    }

    fn item(&mut self) -> Result<(), SqlError> {
        let mut item = Vec::new();
        // With quotes or a backslash, `NULL` is a text.
        let mut quoted = false;
        // End of the part that trailing blanks cannot be cut from.
        let mut solid = 0;
        let text = self.text;
        let bytes = text.as_bytes();
        if self.peek() == Some(b'"') {
            quoted = true;
            self.at += 1;
            loop {
                match bytes.get(self.at) {
                    Some(b'"') => break self.at += 1,
                    Some(b'\\') => item.push(self.escaped()?),
                    Some(byte) => {
                        item.push(*byte);
                        self.at += 1;
                    }
                    None => return Err(self.malformed("Unexpected end of input.")),
                }
            }
        } else {
            loop {
                match bytes.get(self.at) {
                    Some(b',' | b'}') => break,
                    Some(b'\\') => {
                        item.push(self.escaped()?);
                        solid = item.len();
                        quoted = true;
                    }
                    Some(b'{') => return Err(self.malformed("Unexpected \"{\" character.")),
                    Some(b'"') => return Err(self.malformed("Unexpected array element.")),
                    Some(byte) => {
                        item.push(*byte);
                        if !byte.is_ascii_whitespace() {
                            solid = item.len();
                        }
                        self.at += 1;
                    }
                    None => return Err(self.malformed("Unexpected end of input.")),
                }
            }
            item.truncate(solid);
            if item.is_empty() {
                return Err(self.malformed("Unexpected \",\" character.").with_detail(format!(
                    "Unexpected \"{}\" character.",
                    char::from(self.peek().unwrap_or(b','))
                )));
            }
        }
        self.meter.add(size_of::<Datum>() + item.len())?;
        if !quoted && item.eq_ignore_ascii_case(b"null") {
            self.elements.push(Datum::Null);
            return Ok(());
        }
        let item = std::str::from_utf8(&item).map_err(|_| self.malformed("Unexpected array element."))?;
        self.elements.push(Datum::from_text(self.element, item, self.context)?);
        Ok(())
    }
}
