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
INSERT INTO "txtopo_ledger" VALUES('totals','totals',1,5,1,0,2,'{"kind": "opaque", "key": [["key", "string"]], "value": [["value", "long"]], "aggregates": []}','total','totals','09ec2cca42486bb5',5,'[0]');
CREATE INDEX totals_txid ON totals (txid);
CREATE INDEX totals_deleted ON totals (deleted) WHERE deleted;
CREATE VIEW totals_view AS SELECT totals."key", totals.value 
FROM totals 
WHERE NOT totals.deleted;
COMMIT;
