BEGIN TRANSACTION;
CREATE TABLE totals (
	"key" TEXT NOT NULL, 
	value INTEGER, 
	txid INTEGER NOT NULL, 
	PRIMARY KEY ("key")
)
 WITHOUT ROWID,
 STRICT

;
INSERT INTO "totals" VALUES('total',105,5);
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
INSERT INTO "txtopo_ledger" VALUES('totals','totals',1,5,1,0,1,'{"kind": "transactional", "key": [["key", "string"]], "value": [["value", "long"]], "aggregates": []}');
CREATE VIEW totals_view AS SELECT totals."key", totals.value 
FROM totals;
COMMIT;
