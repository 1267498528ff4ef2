BEGIN TRANSACTION;
CREATE TABLE totals (
	"key" TEXT NOT NULL, 
	value INTEGER, 
	txid INTEGER NOT NULL, 
	prev_value INTEGER, 
	prev_txid INTEGER, 
	deleted INTEGER NOT NULL, 
	PRIMARY KEY ("key")
)
 WITHOUT ROWID,
 STRICT

;
INSERT INTO "totals" VALUES('total',105,5,66,4,0);
CREATE TABLE txtopo_ledger (
	state TEXT NOT NULL, 
	topology TEXT, 
	epoch INTEGER NOT NULL, 
	txid INTEGER NOT NULL, 
	writer_epoch INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	schema_version INTEGER NOT NULL, 
	declaration TEXT NOT NULL, 
	PRIMARY KEY (state)
)
 WITHOUT ROWID,
 STRICT

;
INSERT INTO "txtopo_ledger" VALUES('totals','totals',1,5,1,0,1,'{"kind": "opaque", "key": [["key", "string"]], "value": [["value", "long"]], "aggregates": []}');
CREATE INDEX totals_txid ON totals (txid);
CREATE INDEX totals_deleted ON totals (deleted) WHERE deleted;
CREATE VIEW totals_view AS SELECT totals."key", totals.value 
FROM totals 
WHERE NOT totals.deleted;
COMMIT;
