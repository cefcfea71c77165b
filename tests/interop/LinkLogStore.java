package deltalog;

import io.delta.storage.LocalLogStore;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;

/**
 * A log store of delta-spark for a local disk to which other processes write as well.
 *
 * <p>delta-spark's own log store checks that a commit does not exist and then renames, which replaces a commit that
 * another process made in between. This one links the commit to its name, as deltalog does, which fails if the name is
 * taken.
 *
 * <p>Put it on the class path and set {@code spark.delta.logStore.file.impl=deltalog.LinkLogStore}.
 */
public class LinkLogStore extends LocalLogStore {
    public LinkLogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public void write(
            org.apache.hadoop.fs.Path path, Iterator<String> actions, Boolean overwrite, Configuration conf)
            throws IOException {
        if (overwrite) { // a hint or a checksum, which may be replaced
            super.write(path, actions, true, conf);
            return;
        }
        Path target = Paths.get(path.getFileSystem(conf).makeQualified(path).toUri().getPath());
        Path hidden = target.resolveSibling("." + UUID.randomUUID() + ".tmp");
        try {
            try (FileChannel file =
                    FileChannel.open(hidden, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
                while (actions.hasNext()) {
                    ByteBuffer line = ByteBuffer.wrap((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
                    while (line.hasRemaining()) {
                        file.write(line);
                    }
                }
                file.force(true);
            }
            Files.createLink(target, hidden); // FileAlreadyExistsException is what Delta takes for a lost race
        } finally {
            Files.deleteIfExists(hidden);
        }
        try (FileChannel directory = FileChannel.open(target.getParent(), StandardOpenOption.READ)) {
            directory.force(true);
        }
    }

    @Override
    public Boolean isPartialWriteVisible(org.apache.hadoop.fs.Path path, Configuration conf) {
        return false;
    }
}
