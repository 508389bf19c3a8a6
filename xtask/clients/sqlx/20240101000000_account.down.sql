DROP TABLE entry;
DROP TABLE account;
DROP TYPE mood;
