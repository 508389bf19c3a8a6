// Where the server is, and what it refuses with.
"use strict";
const assert = require("node:assert/strict");

const place = {
  host: process.env.PGHOST,
  port: Number(process.env.PGPORT),
  user: process.env.PGUSER,
  database: process.env.PGDATABASE,
};

async function refused(code, work) {
  try {
    await work();
  } catch (error) {
    const found = [error, error.cause, error.original, error.driverError].find((each) => each?.code === code);
    assert.ok(found, `${code} was expected, not ${error.stack}`);
    return found;
  }
  assert.fail(`${code} was expected`);
}

module.exports = { place, refused };
