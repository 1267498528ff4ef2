BEGIN TRANSACTION;
CREATE TABLE kept (
	"key" TEXT NOT NULL, 
	value TEXT, 
	txid INTEGER NOT NULL, 
	PRIMARY KEY ("key")
)
 WITHOUT ROWID,
 STRICT

;
INSERT INTO "kept" VALUES('a','9.00',2);
INSERT INTO "kept" VALUES('b','-9.10',1);
CREATE TABLE means (
	k TEXT NOT NULL, 
	cost_sum TEXT, 
	cost_count INTEGER, 
	most TEXT, 
	txid INTEGER NOT NULL, 
	prev_cost_sum TEXT, 
	prev_cost_count INTEGER, 
	prev_most TEXT, 
	prev_txid INTEGER, 
	deleted INTEGER NOT NULL, 
	PRIMARY KEY (k)
)
 WITHOUT ROWID,
 STRICT

;
INSERT INTO "means" VALUES('a','9.97',4,'10.10',2,'10.00',3,'9.10',1,0);
INSERT INTO "means" VALUES('b',NULL,0,NULL,1,NULL,NULL,NULL,NULL,0);
CREATE TABLE prices (
	day TEXT NOT NULL, 
	shop TEXT NOT NULL, 
	price TEXT, 
	n TEXT, 
	txid INTEGER NOT NULL, 
	prev_price TEXT, 
	prev_n TEXT, 
	prev_txid INTEGER, 
	deleted INTEGER NOT NULL, 
	PRIMARY KEY (day, shop)
)
 WITHOUT ROWID,
 STRICT

;
INSERT INTO "prices" VALUES('-3.5','a','-3.5000','2',1,NULL,NULL,NULL,0);
INSERT INTO "prices" VALUES('0.0','a','0.0000','4',1,NULL,NULL,NULL,0);
INSERT INTO "prices" VALUES('10.2','a','10.2000','1',2,'10.2000','1',1,1);
INSERT INTO "prices" VALUES('7.0','b',NULL,'-5',2,NULL,NULL,NULL,0);
INSERT INTO "prices" VALUES('9.1','a','-0.0001',NULL,2,'9.1000','0',1,0);
INSERT INTO "prices" VALUES('91.0','a','91.0000','3',1,NULL,NULL,NULL,0);
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
INSERT INTO "txtopo_ledger" VALUES('kept','topology',1,2,1,0,2,'{"kind": "transactional", "key": [["key", "string"]], "value": [["value", "decimal(9,2)"]], "aggregates": []}','component','state','ensemble',2,'[0]');
INSERT INTO "txtopo_ledger" VALUES('means','topology',1,2,1,0,2,'{"kind": "opaque", "key": [["k", "string"]], "value": [["cost_sum", "decimal(38,2)"], ["cost_count", "long"], ["most", "decimal(10,2)"]], "aggregates": [["MeanSum", "cost"], ["MeanCount", "cost"], ["Max", "cost"]]}','component','state','ensemble',2,'[0]');
INSERT INTO "txtopo_ledger" VALUES('prices','topology',1,2,1,0,2,'{"kind": "opaque", "key": [["day", "decimal(10,1)"], ["shop", "string"]], "value": [["price", "decimal(18,4)"], ["n", "decimal(18,0)"]], "aggregates": []}','component','state','ensemble',2,'[0]');
CREATE INDEX prices_txid ON prices (txid);
CREATE INDEX prices_deleted ON prices (deleted) WHERE deleted;
CREATE VIEW prices_view AS SELECT prices.day, prices.shop, prices.price, prices.n 
FROM prices 
WHERE NOT prices.deleted;
CREATE VIEW kept_view AS SELECT kept."key", kept.value 
FROM kept;
CREATE INDEX means_txid ON means (txid);
CREATE INDEX means_deleted ON means (deleted) WHERE deleted;
CREATE VIEW means_view AS SELECT means.k, means.cost_sum, means.cost_count, means.most, (means.cost_sum * 1e0) / (nullif(means.cost_count, 0) + 0.0) AS cost 
FROM means 
WHERE NOT means.deleted;
COMMIT;
