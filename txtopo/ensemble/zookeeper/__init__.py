"""The transactional state in ZooKeeper, through kazoo, which nothing else imports."""
