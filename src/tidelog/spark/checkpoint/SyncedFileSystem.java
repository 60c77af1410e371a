package tidelog.checkpoint;

import java.io.File;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;

import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, with two differences: it starts no process, and what it has done stays done.
 *
 * <p>Hadoop without its native library runs chmod for each new file; here it is a system call. A file is synced when it
 * is closed, a folder when an entry of it was made or renamed, and only then does the call return. So whatever a program
 * did after it is on disk only if this is: Spark's order of offsets, state and commits holds for a power cut too.
 *
 * <p>No checksum file is written beside a file, since the two could not be replaced at one instant; one that is there is
 * still checked. Spark keeps checksums of its state itself.
 */
public final class SyncedFileSystem extends LocalFileSystem {
    public SyncedFileSystem() {
        super(new Raw());
        setWriteChecksum(false);
    }

    /** An old checksum goes before its file does: the other way round, a crash would leave it beside a new file. */
    @Override
    public boolean rename(Path from, Path to) throws IOException {
        Path checksum = getChecksumFile(to);
        if (fs.exists(checksum) && fs.delete(checksum, false)) {
            sync(pathToFile(checksum).getParentFile());
        }
        return super.rename(from, to);
    }

    private static void sync(File folder) throws IOException {
        try (FileChannel channel = FileChannel.open(folder.toPath(), StandardOpenOption.READ)) {
            channel.force(true);
        }
    }

    /** Spark's name of a file that is renamed once it is whole: its folder is synced then. */
    private static boolean isTemporary(Path path) {
        return path.getName().startsWith(".") && path.getName().endsWith(".tmp");
    }

    private static final class Raw extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            Files.setAttribute(pathToFile(path).toPath(), "unix:mode", (int) permission.toShort());
        }

        @Override
        protected OutputStream createOutputStreamWithMode(Path path, boolean append, FsPermission permission)
                throws IOException {
            File folder = pathToFile(path).getParentFile();
            return new SyncedStream(
                    super.createOutputStreamWithMode(path, append, permission), isTemporary(path) ? null : folder);
        }

        @Override
        protected OutputStream createOutputStream(Path path, boolean append) throws IOException {
            return createOutputStreamWithMode(path, append, null);
        }

        @Override
        protected boolean mkOneDirWithMode(Path path, File folder, FsPermission permission) throws IOException {
            boolean made = super.mkOneDirWithMode(path, folder, permission);
            if (made) {
                sync(folder.getAbsoluteFile().getParentFile());
            }
            return made;
        }

        @Override
        public boolean rename(Path from, Path to) throws IOException {
            boolean renamed = super.rename(from, to);
            if (renamed) {
                File source = pathToFile(from).getParentFile();
                File target = pathToFile(to).getParentFile();
                sync(target);
                if (!source.equals(target)) {
                    sync(source);
                }
            }
            return renamed;
        }
    }

    /** A file that is synced when it is closed, and the folder with its name too, if there is one to sync. */
    private static final class SyncedStream extends FilterOutputStream implements Syncable, StreamCapabilities {
        private final File folder;
        private boolean closed;

        SyncedStream(OutputStream file, File folder) {
            super(file);
            this.folder = folder;
        }

        @Override
        public void write(byte[] bytes, int start, int length) throws IOException {
            out.write(bytes, start, length);
        }

        @Override
        public void hflush() throws IOException {
            ((Syncable) out).hflush();
        }

        @Override
        public void hsync() throws IOException {
            ((Syncable) out).hsync();
        }

        @Override
        public boolean hasCapability(String capability) {
            return ((StreamCapabilities) out).hasCapability(capability);
        }

        @Override
        public void close() throws IOException {
            if (closed) {
                return;
            }
            closed = true;
            try (OutputStream file = out) {
                ((Syncable) file).hsync();
            }
            if (folder != null) {
                sync(folder);
            }
        }
    }
}
