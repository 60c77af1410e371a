package tidelog.checkpoint;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFileSystem;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/** {@code fs.AbstractFileSystem.file.impl}: synced files for the newer interface, by which Spark writes checkpoints. */
public final class SyncedFileContext extends DelegateToFileSystem {
    private static final Set<File> LISTED = ConcurrentHashMap.newKeySet();
    private static final int NO_PORT = -1;

    public SyncedFileContext(URI uri, Configuration settings) throws IOException, URISyntaxException {
        super(uri, new SyncedFiles(), settings, "file", false);
    }

    @Override
    public int getUriDefaultPort() {
        return NO_PORT;
    }

    @Override
    public boolean isValidName(String name) {
        return true;
    }

    /** Replaces at one instant; the general way of Hadoop deletes first, and lists by running readlink. */
    @Override
    public void renameInternal(Path from, Path to, boolean overwrite) throws IOException {
        if (!overwrite && fsImpl.exists(to)) {
            throw new FileAlreadyExistsException(to + " exists");
        }
        renameInternal(from, to);
    }

    @Override
    public void renameInternal(Path from, Path to) throws IOException {
        if (!fsImpl.rename(from, to)) {
            throw new IOException(from + " could not be renamed to " + to);
        }
    }

    /**
     * Syncs a folder that it sees for the first time: a process that was killed may have renamed a file and not have come
     * to syncing it, and what rests on it now would outlive it in a power cut.
     */
    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
        FileStatus[] entries = fsImpl.listStatus(path);
        File folder = ((SyncedFiles) fsImpl).pathToFile(path);
        if (folder.isDirectory() && LISTED.add(folder)) {
            SyncedFiles.sync(folder);
        }
        List<FileStatus> files = new ArrayList<>(entries.length);
        for (FileStatus entry : entries) {
            if (!ChecksumFileSystem.isChecksumFile(entry.getPath())) {
                files.add(entry);
            }
        }
        return files.toArray(new FileStatus[0]);
    }
}
