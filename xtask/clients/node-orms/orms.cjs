// Each makes a schema, writes and reads it, meets errors with their fields, and looks at what the
// database says of itself.
"use strict";
require("reflect-metadata");
const assert = require("node:assert/strict");
const { Client, Pool } = require("pg");
const { place, refused } = require("./refused.cjs");

async function nodePostgres() {
  const client = new Client(place);
  await client.connect();
  await client.query("DROP TABLE IF EXISTS account, entry");
  await client.query(
    "CREATE TABLE account (id serial PRIMARY KEY, name text NOT NULL CONSTRAINT account_name UNIQUE, balance numeric(12,2) CHECK (balance >= 0), at timestamptz DEFAULT now(), document jsonb, raw bytea, tags text[], day date)",
  );
  const insert = "INSERT INTO account (name, balance, document, raw, tags) VALUES ($1, $2, $3, $4, $5) RETURNING *";
  const { rows } = await client.query(insert, ["a", "10.50", { b: [1] }, Buffer.from([0, 255]), ["x,y", null]]);
  assert.deepEqual([rows[0].balance, rows[0].document, [...rows[0].raw], rows[0].tags], ["10.50", { b: [1] }, [0, 255], ["x,y", null]]);
  assert.ok(rows[0].at instanceof Date);
  let error = await refused("23505", () => client.query(insert, ["a", 1, null, null, null]));
  assert.deepEqual([error.constraint, error.table, error.schema, error.detail], ["account_name", "account", "public", "Key (name)=(a) already exists."]);
  error = await refused("23514", () => client.query(insert, ["b", -1, null, null, null]));
  assert.equal(error.constraint, "account_balance_check");
  error = await refused("23502", () => client.query(insert, [null, 1, null, null, null]));
  assert.equal(error.column, "name");
  // The same text under a name is parsed once.
  for (let i = 0; i < 10; i++) {
    const named = { name: "by-name", text: "SELECT balance FROM account WHERE name = $1", values: ["a"], rowMode: "array" };
    assert.deepEqual((await client.query(named)).rows, [["10.50"]]);
  }
  const many = await client.query("SELECT 1 AS a; SELECT 2 AS b");
  assert.deepEqual(many.map((each) => each.rows[0]), [{ a: 1 }, { b: 2 }]);

  // A transaction that met another one is run again.
  const pool = new Pool({ ...place, max: 8 });
  const deposit = async () => {
    for (;;) {
      const session = await pool.connect();
      try {
        await session.query("BEGIN ISOLATION LEVEL SERIALIZABLE");
        const found = await session.query("SELECT balance FROM account WHERE name = 'a'");
        await session.query("UPDATE account SET balance = $1 WHERE name = 'a'", [Number(found.rows[0].balance) + 1]);
        await session.query("COMMIT");
        return;
      } catch (met) {
        await session.query("ROLLBACK");
        assert.equal(met.code, "40001", met);
      } finally {
        session.release();
      }
    }
  };
  await Promise.all(Array.from({ length: 20 }, deposit));
  assert.equal((await client.query("SELECT balance FROM account WHERE name = 'a'")).rows[0].balance, "30.50");

  await client.query("LISTEN news");
  const heard = new Promise((done) => client.once("notification", done));
  await pool.query("SELECT pg_notify('news', 'hello')");
  assert.equal((await heard).payload, "hello");
  error = await refused("57014", async () => {
    await client.query("SET statement_timeout = 200");
    await client.query("SELECT pg_sleep(20)");
  });
  await client.query("RESET statement_timeout");
  await client.end();
  await pool.end();
}

async function knex() {
  const db = require("knex")({ client: "pg", connection: place, pool: { min: 0, max: 4 } });
  await db.schema.dropTableIfExists("line").dropTableIfExists("item");
  await db.schema.createTable("item", (table) => {
    table.increments("id");
    table.string("name", 40).notNullable().index();
    table.decimal("price", 10, 2).defaultTo(0);
    table.enu("kind", ["book", "toy"]).defaultTo("book");
    table.jsonb("document");
    table.uuid("key").defaultTo(db.raw("gen_random_uuid()"));
    table.timestamps(true, true);
    table.unique(["name", "kind"], { indexName: "item_name_kind" });
  });
  await db.schema.createTable("line", (table) => {
    table.bigIncrements("id");
    table.integer("item_id").references("id").inTable("item").onDelete("CASCADE");
    table.integer("count").unsigned().notNullable();
  });
  const [{ id }] = await db("item").insert({ name: "one", price: 2.5, document: { a: 1 } }).returning("id");
  await db.batchInsert("line", Array.from({ length: 300 }, (_, count) => ({ item_id: id, count })), 100);
  assert.deepEqual(await db("line").where("count", "<", 10).sum("count as total").first(), { total: "45" });
  await db("item").insert({ name: "one", price: 3 }).onConflict(["name", "kind"]).merge(["price"]);
  assert.equal((await db("item").first()).price, "3.00");
  await refused("23514", () => db("item").insert({ name: "x", kind: "car" }));
  await db.transaction(async (trx) => {
    await trx("line").where({ item_id: id }).limit(1).forUpdate().skipLocked().first();
    await trx.transaction(async (inner) => { await inner("line").delete(); throw new Error("taken back"); }).catch(() => {});
    assert.equal((await trx("line").count("* as n").first()).n, "300");
  });
  await db.schema.alterTable("item", (table) => { table.string("colour").defaultTo("red"); table.dropColumn("key"); table.renameColumn("price", "cost"); });
  const columns = await db("item").columnInfo();
  assert.deepEqual([columns.colour.type, columns.cost.type, columns.name.maxLength], ["character varying", "numeric", 40]);
  assert.equal(await db.schema.hasColumn("item", "key"), false);
  await db.schema.dropTable("line").dropTable("item");
  await db.destroy();
}

async function sequelize() {
  const { Sequelize, DataTypes, Op, Transaction } = require("sequelize");
  const db = new Sequelize(place.database, place.user, "", { host: place.host, port: place.port, dialect: "postgres", logging: false });
  const User = db.define("User", {
    email: { type: DataTypes.STRING(80), allowNull: false, unique: true },
    // Sequelize makes enum types by DO blocks. It finds or creates by functions in PL/pgSQL: there
    // are none.
    role: { type: DataTypes.ENUM("guest", "admin"), defaultValue: "guest" },
    profile: DataTypes.JSONB,
    tags: DataTypes.ARRAY(DataTypes.STRING),
    born: DataTypes.DATEONLY,
    money: DataTypes.DECIMAL(12, 2),
    key: { type: DataTypes.UUID, defaultValue: DataTypes.UUIDV4 },
    raw: DataTypes.BLOB,
  }, { indexes: [{ fields: ["role", "born"] }] });
  const Post = db.define("Post", { title: DataTypes.TEXT, votes: { type: DataTypes.INTEGER, defaultValue: 0 } });
  User.hasMany(Post, { onDelete: "CASCADE" });
  Post.belongsTo(User);
  await db.sync({ force: true });
  await db.sync({ alter: true });
  const ada = await User.create({ email: "ada@x", role: "admin", profile: { a: { b: 1 } }, tags: ["x", "y"], born: "1815-12-10", money: "1.10", raw: Buffer.from([1]) });
  await Post.bulkCreate(Array.from({ length: 50 }, (_, i) => ({ title: `t${i}`, votes: i, UserId: ada.id })));
  const error = await refused("23505", () => User.create({ email: "ada@x" }));
  assert.equal(error.constraint, "Users_email_key");
  const found = await User.findOne({ where: { tags: { [Op.contains]: ["x"] }, "profile.a.b": 1 }, include: { model: Post, where: { votes: { [Op.gte]: 48 } } } });
  assert.deepEqual([found.Posts.length, found.money, found.born, found.role], [2, "1.10", "1815-12-10", "admin"]);
  await Post.increment("votes", { by: 5, where: { title: "t0" } });
  assert.equal(await Post.sum("votes"), 1230);
  await User.upsert({ id: ada.id, email: "ada@x", money: "2.00" });
  const { rows, count } = await Post.findAndCountAll({ limit: 5, offset: 45, order: [["id", "ASC"]] });
  assert.deepEqual([rows.length, count], [5, 50]);
  await db.transaction({ isolationLevel: Transaction.ISOLATION_LEVELS.REPEATABLE_READ }, async (transaction) => {
    await User.findByPk(ada.id, { lock: transaction.LOCK.UPDATE, skipLocked: true, transaction });
    await ada.update({ role: "guest" }, { transaction });
  });
  const description = await db.getQueryInterface().describeTable("Users");
  assert.deepEqual([description.role.defaultValue, description.email.allowNull, description.id.primaryKey], ["guest", false, true]);
  assert.ok((await db.getQueryInterface().showIndex("Users")).some((index) => index.unique && index.fields[0].attribute === "email"));
  await ada.destroy();
  assert.equal(await Post.count(), 0);
  await db.drop({});
  await db.close();
}

async function typeorm() {
  const { DataSource, EntitySchema, MoreThan } = require("typeorm");
  const Author = new EntitySchema({
    name: "author",
    columns: {
      id: { type: "int", primary: true, generated: true },
      name: { type: "varchar", length: 60, unique: true },
      mood: { type: "enum", enum: ["sad", "happy"], default: "happy" },
      document: { type: "jsonb", nullable: true },
      tags: { type: "text", array: true, default: "{}" },
      wealth: { type: "numeric", precision: 12, scale: 2, default: 0 },
      joined: { type: "timestamptz", createDate: true },
      version: { type: "int", version: true },
    },
    checks: [{ name: "author_wealth", expression: '"wealth" >= 0' }],
    relations: { books: { type: "one-to-many", target: "book", inverseSide: "author", cascade: true } },
  });
  const Book = new EntitySchema({
    name: "book",
    columns: { key: { type: "uuid", primary: true, generated: "uuid" }, title: { type: "text" }, pages: { type: "int" } },
    relations: { author: { type: "many-to-one", target: "author", inverseSide: "books", onDelete: "CASCADE", joinColumn: true } },
    indices: [{ name: "book_title", columns: ["title", "pages"] }],
  });
  const options = { type: "postgres", host: place.host, port: place.port, username: place.user, database: place.database, entities: [Author, Book] };
  let db = await new DataSource({ ...options, dropSchema: true, synchronize: true }).initialize();
  const authors = db.getRepository("author");
  const ada = await authors.save({ name: "ada", document: { a: 1 }, tags: ["x"], books: [{ title: "one", pages: 1 }, { title: "two", pages: 200 }] });
  const found = await authors.findOne({ where: { books: { pages: MoreThan(100) } }, relations: { books: true } });
  assert.deepEqual([found.name, found.books.map((book) => book.title), found.mood, found.wealth, found.version], ["ada", ["two"], "happy", "0.00", 1]);
  const error = await refused("23505", () => authors.insert({ name: "ada" }));
  assert.match(error.detail, /Key \(name\)=\(ada\)/);
  assert.equal((await refused("23514", () => authors.update(ada.id, { wealth: -1 }))).constraint, "author_wealth");
  await authors.upsert([{ name: "ada", mood: "sad" }], ["name"]);
  const totals = await db.createQueryBuilder("book", "b").innerJoin("b.author", "a").select("a.name", "name").addSelect("SUM(b.pages)", "pages").groupBy("a.name").getRawOne();
  assert.deepEqual(totals, { name: "ada", pages: "201" });
  await db.transaction("SERIALIZABLE", async (manager) => {
    const locked = await manager.findOne("author", { where: { name: "ada" }, lock: { mode: "pessimistic_write" } });
    locked.wealth = "5.00";
    await manager.save("author", locked);
  });
  await db.destroy();
  // Another start compares the schema with the entities, and finds nothing to do.
  db = await new DataSource(options).initialize();
  const plan = await db.driver.createSchemaBuilder().log();
  assert.deepEqual(plan.upQueries.map((query) => query.query), []);
  await db.getRepository("author").delete({ name: "ada" });
  assert.equal(await db.getRepository("book").count(), 0);
  await db.dropDatabase();
  await db.destroy();
}

async function drizzle() {
  const { drizzle } = require("drizzle-orm/node-postgres");
  const { pgTable, pgEnum, serial, text, integer, numeric, jsonb, timestamp, uuid, boolean, uniqueIndex } = require("drizzle-orm/pg-core");
  const { eq, sql, gt, and, desc, count } = require("drizzle-orm");
  const pool = new Pool(place);
  const state = pgEnum("state", ["open", "shut"]);
  const shop = pgTable("shop", {
    id: serial("id").primaryKey(), name: text("name").notNull(), state: state("state").default("open").notNull(),
    facts: jsonb("facts"), opened: timestamp("opened", { withTimezone: true }).defaultNow(), key: uuid("key").defaultRandom(), ok: boolean("ok").default(true),
  }, (table) => [uniqueIndex("shop_name").on(table.name)]);
  const sale = pgTable("sale", { id: serial("id").primaryKey(), shop: integer("shop").references(() => shop.id), amount: numeric("amount", { precision: 10, scale: 2 }) });
  const db = drizzle(pool, { schema: { shop, sale } });
  await db.execute(sql`DROP TABLE IF EXISTS sale, shop`);
  await db.execute(sql`DROP TYPE IF EXISTS state`);
  await db.execute(sql`CREATE TYPE state AS ENUM ('open', 'shut')`);
  await db.execute(sql`CREATE TABLE shop (id serial PRIMARY KEY NOT NULL, name text NOT NULL, state "public"."state" DEFAULT 'open' NOT NULL, facts jsonb, opened timestamp with time zone DEFAULT now(), key uuid DEFAULT gen_random_uuid(), ok boolean DEFAULT true)`);
  await db.execute(sql`CREATE UNIQUE INDEX IF NOT EXISTS "shop_name" ON "shop" USING btree ("name")`);
  await db.execute(sql`CREATE TABLE sale (id serial PRIMARY KEY NOT NULL, shop integer, amount numeric(10, 2))`);
  await db.execute(sql`ALTER TABLE "sale" ADD CONSTRAINT "sale_shop_shop_id_fk" FOREIGN KEY ("shop") REFERENCES "public"."shop"("id") ON DELETE no action ON UPDATE no action`);
  const [made] = await db.insert(shop).values({ name: "one", facts: { a: [1] } }).returning();
  assert.deepEqual([made.state, made.facts, made.ok], ["open", { a: [1] }, true]);
  await db.insert(sale).values([1, 2, 3].map((amount) => ({ shop: made.id, amount: String(amount) })));
  const rows = await db.select({ name: shop.name, n: count(), total: sql`sum(${sale.amount})` }).from(shop).leftJoin(sale, eq(sale.shop, shop.id)).where(and(gt(sale.amount, "1"), eq(shop.state, "open"))).groupBy(shop.name).orderBy(desc(shop.name));
  assert.deepEqual(rows, [{ name: "one", n: 2, total: "5.00" }]);
  await db.insert(shop).values({ name: "one" }).onConflictDoUpdate({ target: shop.name, set: { state: "shut" } });
  const prepared = db.select().from(shop).where(eq(shop.name, sql.placeholder("name"))).prepare("by_name");
  assert.equal((await prepared.execute({ name: "one" }))[0].state, "shut");
  await refused("23503", () => db.insert(sale).values({ shop: 99, amount: "1" }));
  await db.transaction(async (tx) => {
    await tx.transaction(async (inner) => { await inner.delete(sale); inner.rollback(); }).catch(() => {});
    assert.equal((await tx.select().from(sale)).length, 3);
  }, { isolationLevel: "serializable" });
  await db.execute(sql`DROP TABLE sale, shop`);
  await db.execute(sql`DROP TYPE state`);
  await pool.end();
}

(async () => {
  for (const each of [nodePostgres, knex, sequelize, typeorm, drizzle]) {
    try {
      await each();
    } catch (error) {
      console.error(`${each.name}: ${error.stack}`);
      process.exitCode = 1;
      if (!process.env.EVERY) process.exit(1);
    }
  }
  process.exit();
})();
