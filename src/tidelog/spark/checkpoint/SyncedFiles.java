package tidelog.checkpoint;

import java.io.File;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;

import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Files and folders of this machine: no call starts a process, and what a call has done stays done.
 *
 * <p>Without its native library Hadoop runs chmod for each new file; here it is a system call. A file is synced when it
 * is closed, a folder when an entry of it was made or renamed, and only then does the call return. So nothing that a
 * program did later can be on disk without it, and the order in which Spark writes offsets, state and commits holds for
 * a power cut too.
 *
 * <p>Hadoop's checksum of a file is a file beside it, and the two cannot be replaced at one instant. None is written
 * here, and one that is there goes before its file is replaced or deleted.
 */
final class SyncedFiles extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
        Files.setAttribute(pathToFile(path).toPath(), "unix:mode", (int) permission.toShort());
    }

    @Override
    protected OutputStream createOutputStreamWithMode(Path path, boolean append, FsPermission permission)
            throws IOException {
        File folder = isTemporary(path) ? null : folderOf(path);
        return new SyncedStream(super.createOutputStreamWithMode(path, append, permission), folder);
    }

    @Override
    protected OutputStream createOutputStream(Path path, boolean append) throws IOException {
        return createOutputStreamWithMode(path, append, null);
    }

    @Override
    protected boolean mkOneDirWithMode(Path path, File folder, FsPermission permission) throws IOException {
        boolean made = super.mkOneDirWithMode(path, folder, permission);
        if (made) {
            sync(folderOf(path));
        }
        return made;
    }

    @Override
    public boolean rename(Path from, Path to) throws IOException {
        File source = folderOf(from);
        File target = folderOf(to);
        if (checksumOf(to).delete()) {
            sync(target);
        }
        boolean renamed = super.rename(from, to);
        if (renamed) {
            sync(target);
            if (!source.equals(target)) {
                sync(source);
            }
        }
        return renamed;
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        if (checksumOf(path).delete()) {
            sync(folderOf(path));
        }
        return super.delete(path, recursive);
    }

    /** Not given up when the thread is told to stop, as Spark does with a query: the entry is there already. */
    static void sync(File folder) throws IOException {
        boolean interrupted = Thread.interrupted();
        try {
            while (true) {
                try (FileChannel channel = FileChannel.open(folder.toPath(), StandardOpenOption.READ)) {
                    channel.force(true);
                    return;
                } catch (ClosedByInterruptException ignored) {
                    interrupted |= Thread.interrupted();
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    File folderOf(Path path) {
        return pathToFile(path).getAbsoluteFile().getParentFile();
    }

    private File checksumOf(Path path) {
        return new File(folderOf(path), "." + path.getName() + ".crc");
    }

    /** Spark's name for a file that is renamed once it is whole: its folder is synced then. */
    private static boolean isTemporary(Path path) {
        return path.getName().startsWith(".") && path.getName().endsWith(".tmp");
    }

    /** A file that is synced when it is closed, and then the folder with its name, if there is one to sync. */
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
