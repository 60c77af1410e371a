package tidelog.checkpoint;

import org.apache.hadoop.fs.LocalFileSystem;

/** {@code fs.file.impl}: synced files for Hadoop's older interface, by which Spark writes tables and copies RocksDB's. */
public final class SyncedFileSystem extends LocalFileSystem {
    public SyncedFileSystem() {
        super(new SyncedFiles());
        setWriteChecksum(false);
    }
}
