BEGIN TRANSACTION;
CREATE TABLE kept (
	"key" TEXT NOT NULL, 
	value INTEGER, 
	txid INTEGER NOT NULL, 
	PRIMARY KEY ("key"), 
	CONSTRAINT "value: 9 digits, 2 of them behind the point" CHECK (value BETWEEN -999999999 AND 999999999)
)
 WITHOUT ROWID,
 STRICT

;
INSERT INTO "kept" VALUES('a',900,2);
INSERT INTO "kept" VALUES('b',-910,1);
CREATE TABLE means (
	k TEXT NOT NULL, 
	cost_sum INTEGER, 
	cost_count INTEGER, 
	most INTEGER, 
	txid INTEGER NOT NULL, 
	prev_cost_sum INTEGER, 
	prev_cost_count INTEGER, 
	prev_most INTEGER, 
	prev_txid INTEGER, 
	deleted INTEGER NOT NULL, 
	PRIMARY KEY (k), 
	CONSTRAINT "cost_sum: 18 digits, 2 of them behind the point; PostgreSQL has 38" CHECK (cost_sum BETWEEN -999999999999999999 AND 999999999999999999), 
	CONSTRAINT "most: 10 digits, 2 of them behind the point" CHECK (most BETWEEN -9999999999 AND 9999999999)
)
 WITHOUT ROWID,
 STRICT

;
INSERT INTO "means" VALUES('a',997,4,1010,2,1000,3,910,1,0);
INSERT INTO "means" VALUES('b',NULL,0,NULL,1,NULL,NULL,NULL,NULL,0);
CREATE TABLE prices (
	day INTEGER NOT NULL, 
	shop TEXT NOT NULL, 
	price INTEGER, 
	n INTEGER, 
	txid INTEGER NOT NULL, 
	prev_price INTEGER, 
	prev_n INTEGER, 
	prev_txid INTEGER, 
	deleted INTEGER NOT NULL, 
	PRIMARY KEY (day, shop), 
	CONSTRAINT "day: 10 digits, 1 of them behind the point" CHECK (day BETWEEN -9999999999 AND 9999999999), 
	CONSTRAINT "price: 18 digits, 4 of them behind the point; PostgreSQL has 38" CHECK (price BETWEEN -999999999999999999 AND 999999999999999999), 
	CONSTRAINT "n: 18 digits, 0 of them behind the point; PostgreSQL has 38" CHECK (n BETWEEN -999999999999999999 AND 999999999999999999)
)
 WITHOUT ROWID,
 STRICT

;
INSERT INTO "prices" VALUES(-35,'a',-35000,2,1,NULL,NULL,NULL,0);
INSERT INTO "prices" VALUES(0,'a',0,4,1,NULL,NULL,NULL,0);
INSERT INTO "prices" VALUES(70,'b',NULL,-5,2,NULL,NULL,NULL,0);
INSERT INTO "prices" VALUES(91,'a',-1,NULL,2,91000,0,1,0);
INSERT INTO "prices" VALUES(102,'a',102000,1,2,102000,1,1,1);
INSERT INTO "prices" VALUES(910,'a',910000,3,1,NULL,NULL,NULL,0);
CREATE TABLE txtopo_ledger (
	state TEXT NOT NULL, 
	topology TEXT, 
	epoch INTEGER NOT NULL, 
	txid INTEGER NOT NULL, 
	writer_epoch INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	schema_version INTEGER NOT NULL, 
	declaration TEXT NOT NULL, 
	component TEXT, 
	state_name TEXT, 
	ensemble TEXT, 
	first_txid INTEGER, 
	attempts TEXT, 
	PRIMARY KEY (state)
)
 WITHOUT ROWID,
 STRICT

;
INSERT INTO "txtopo_ledger" VALUES('kept','topology',1,2,1,0,3,'{"kind": "transactional", "key": [["key", "string"]], "value": [["value", "decimal(9,2)"]], "aggregates": []}','component','state','ensemble',2,'[0]');
INSERT INTO "txtopo_ledger" VALUES('means','topology',1,2,1,0,3,'{"kind": "opaque", "key": [["k", "string"]], "value": [["cost_sum", "decimal(38,2)"], ["cost_count", "long"], ["most", "decimal(10,2)"]], "aggregates": [["MeanSum", "cost"], ["MeanCount", "cost"], ["Max", "cost"]]}','component','state','ensemble',2,'[0]');
INSERT INTO "txtopo_ledger" VALUES('prices','topology',1,2,1,0,3,'{"kind": "opaque", "key": [["day", "decimal(10,1)"], ["shop", "string"]], "value": [["price", "decimal(18,4)"], ["n", "decimal(18,0)"]], "aggregates": []}','component','state','ensemble',2,'[0]');
CREATE INDEX prices_txid ON prices (txid);
CREATE INDEX prices_deleted ON prices (deleted) WHERE deleted;
CREATE VIEW prices_view AS SELECT prices.day / 1e1 AS day, prices.shop, prices.price / 1e4 AS price, prices.n AS n 
FROM prices 
WHERE NOT prices.deleted;
CREATE VIEW kept_view AS SELECT kept."key", kept.value / 1e2 AS value 
FROM kept;
CREATE INDEX means_txid ON means (txid);
CREATE INDEX means_deleted ON means (deleted) WHERE deleted;
CREATE VIEW means_view AS SELECT means.k, means.cost_sum / 1e2 AS cost_sum, means.cost_count, means.most / 1e2 AS most, ((means.cost_sum / 1e2) * 1e0) / (nullif(means.cost_count, 0) + 0.0) AS cost 
FROM means 
WHERE NOT means.deleted;
COMMIT;
