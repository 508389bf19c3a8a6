// knex, Sequelize, TypeORM and Drizzle over the same tables: every constraint's error as each hands
// it on, transactions that are tried again after 40001, and what two of them stream and cancel.
"use strict";
require("reflect-metadata");
const assert = require("node:assert/strict");
const { Client, Pool } = require("pg");
const { place, refused } = require("./refused.cjs");

const SCHEMA = `DROP TABLE IF EXISTS entry, holder, purse;
  CREATE TABLE holder (id int PRIMARY KEY);
  CREATE TABLE entry (id int PRIMARY KEY, holder int CONSTRAINT entry_holder REFERENCES holder,
    name text NOT NULL CONSTRAINT entry_name UNIQUE, amount int CONSTRAINT entry_amount CHECK (amount >= 0));
  CREATE TABLE purse (id int PRIMARY KEY, amount int NOT NULL);
  INSERT INTO holder VALUES (1);
  INSERT INTO entry VALUES (1, 1, 'a', 0);
  INSERT INTO purse VALUES (1, 10)`;

// Each row breaks one constraint, and the error says which.
async function meetsConstraints(insert) {
  for (const [code, row, constraint, column, detail] of [
    ["23505", { id: 2, holder: 1, name: "a", amount: 0 }, "entry_name", undefined, "Key (name)=(a) already exists."],
    ["23503", { id: 2, holder: 9, name: "b", amount: 0 }, "entry_holder", undefined, 'Key (holder)=(9) is not present in table "holder".'],
    ["23514", { id: 2, holder: 1, name: "b", amount: -1 }, "entry_amount", undefined, "Failing row contains (2, 1, b, -1)."],
    ["23502", { id: 2, holder: 1, name: null, amount: 0 }, undefined, "name", "Failing row contains (2, 1, null, 0)."],
  ]) {
    const error = await refused(code, () => insert(row));
    const told = [error.schema, error.table, error.constraint, error.column, error.detail];
    assert.deepEqual(told, ["public", "entry", constraint, column, detail]);
  }
}

// `add` reads the purse, lets another one in, and writes one more than it has read. The first time
// the other one has changed the purse, so that the transaction is refused; the second time it has not.
async function retries(other, add) {
  let attempts = 0;
  for (let done = false; !done; ) {
    attempts += 1;
    const meets = attempts === 1 ? () => other.query("UPDATE purse SET amount = amount + 5") : async () => {};
    try {
      await add(meets);
      done = true;
    } catch (error) {
      await refused("40001", () => { throw error; });
      assert.equal(attempts, 1);
    }
  }
  assert.equal(attempts, 2, "the first attempt is refused");
  assert.deepEqual((await other.query("SELECT amount FROM purse")).rows, [{ amount: 16 }]);
}

async function knex(other) {
  const db = require("knex")({ client: "pg", connection: place, pool: { min: 0, max: 4 } });
  await meetsConstraints((row) => db("entry").insert(row));
  await retries(other, (meets) =>
    db.transaction(async (transaction) => {
      const { amount } = await transaction("purse").where({ id: 1 }).first();
      await meets();
      await transaction("purse").where({ id: 1 }).update({ amount: amount + 1 });
    }, { isolationLevel: "serializable" }));
  let sum = 0;
  for await (const row of db.select(db.raw("n::int AS n")).from(db.raw("generate_series(1, 1000) n")).stream()) sum += row.n;
  assert.equal(sum, 500500);
  // It cancels by pg_cancel_backend from another connection.
  await assert.rejects(db.raw("SELECT pg_sleep(60)").timeout(500, { cancel: true }), { name: "KnexTimeoutError" });
  await db.destroy();
}

async function sequelize(other) {
  const { Sequelize, DataTypes, Transaction } = require("sequelize");
  const db = new Sequelize(place.database, place.user, "", { host: place.host, port: place.port, dialect: "postgres", logging: false });
  const table = (name, columns) =>
    db.define(name, { id: { type: DataTypes.INTEGER, primaryKey: true }, ...columns }, { tableName: name, timestamps: false });
  const Entry = table("entry", { holder: DataTypes.INTEGER, name: DataTypes.TEXT, amount: DataTypes.INTEGER });
  const Purse = table("purse", { amount: DataTypes.INTEGER });
  await meetsConstraints((row) => Entry.create(row));
  // It makes errors of its own of two of them.
  await assert.rejects(Entry.create({ id: 2, name: "a" }), { name: "SequelizeUniqueConstraintError", fields: { name: "a" } });
  await assert.rejects(Entry.create({ id: 2, name: "b", holder: 9 }), { name: "SequelizeForeignKeyConstraintError", index: "entry_holder", table: "entry" });
  await retries(other, (meets) =>
    db.transaction({ isolationLevel: Transaction.ISOLATION_LEVELS.SERIALIZABLE }, async (transaction) => {
      const purse = await Purse.findByPk(1, { transaction });
      await meets();
      await purse.update({ amount: purse.amount + 1 }, { transaction });
    }));
  await db.close();
}

async function typeorm(other) {
  const { DataSource, EntitySchema } = require("typeorm");
  const id = { type: "int", primary: true };
  const int = { type: "int" };
  const Entry = new EntitySchema({ name: "entry", columns: { id, holder: int, name: { type: "text" }, amount: int } });
  const Purse = new EntitySchema({ name: "purse", columns: { id, amount: int } });
  const db = await new DataSource({ type: "postgres", host: place.host, port: place.port, username: place.user, database: place.database, entities: [Entry, Purse], installExtensions: false }).initialize();
  await meetsConstraints((row) => db.getRepository("entry").insert(row));
  await retries(other, (meets) =>
    db.transaction("SERIALIZABLE", async (manager) => {
      const purse = await manager.findOneBy("purse", { id: 1 });
      await meets();
      await manager.update("purse", { id: 1 }, { amount: purse.amount + 1 });
    }));
  const runner = db.createQueryRunner();
  let sum = 0;
  for await (const row of await runner.stream("SELECT n::int AS n FROM generate_series(1, $1::int) n", [1000])) sum += row.n;
  assert.equal(sum, 500500);
  await runner.release();
  await db.destroy();
}

async function drizzle(other) {
  const { drizzle } = require("drizzle-orm/node-postgres");
  const { pgTable, integer, text } = require("drizzle-orm/pg-core");
  const { eq } = require("drizzle-orm");
  const entry = pgTable("entry", { id: integer("id").primaryKey(), holder: integer("holder"), name: text("name"), amount: integer("amount") });
  const purse = pgTable("purse", { id: integer("id").primaryKey(), amount: integer("amount") });
  const pool = new Pool(place);
  const db = drizzle(pool);
  await meetsConstraints((row) => db.insert(entry).values(row));
  await retries(other, (meets) =>
    db.transaction(async (transaction) => {
      const [{ amount }] = await transaction.select().from(purse).where(eq(purse.id, 1));
      await meets();
      await transaction.update(purse).set({ amount: amount + 1 }).where(eq(purse.id, 1));
    }, { isolationLevel: "serializable" }));
  await pool.end();
}

(async () => {
  const other = new Client(place);
  await other.connect();
  for (const each of [knex, sequelize, typeorm, drizzle]) {
    await other.query(SCHEMA);
    try {
      await each(other);
    } catch (error) {
      console.error(`${each.name}: ${error.stack}`);
      process.exit(1);
    }
  }
  await other.query("DROP TABLE entry, holder, purse");
  process.exit();
})();
