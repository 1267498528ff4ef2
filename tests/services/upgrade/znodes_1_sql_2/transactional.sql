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
INSERT INTO "txtopo_ledger" VALUES('totals','totals',1,5,1,0,2,'{"kind": "transactional", "key": [["key", "string"]], "value": [["value", "long"]], "aggregates": []}','total','totals','39fcf33d2bb1bf89',5,'[0]');
CREATE VIEW totals_view AS SELECT totals."key", totals.value 
FROM totals;
COMMIT;
