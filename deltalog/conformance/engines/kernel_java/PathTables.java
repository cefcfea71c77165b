package deltalog.conformance.kernel;

import io.delta.kernel.CommitRange;
import io.delta.kernel.CommitRangeBuilder;
import io.delta.kernel.CommitRangeBuilder.CommitBoundary;
import io.delta.kernel.Snapshot;
import io.delta.kernel.SnapshotBuilder;
import io.delta.kernel.TableManager;
import io.delta.kernel.defaults.engine.DefaultEngine;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.hook.PostCommitHook.PostCommitHookType;
import io.delta.kernel.types.StructType;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;

/** Tables that are directories of a local disk. */
final class PathTables implements Tables {
    private final Engine engine = DefaultEngine.create(new Configuration());

    @Override
    public Table open(String path) {
        return new PathTable(path);
    }

    @Override
    public void create(String path, StructType schema, List<String> partitionBy, Map<String, String> properties) {
        Tables.commitNew(
                TableManager.buildCreateTableTransaction(path, schema, ENGINE_INFO), engine, partitionBy, properties);
    }

    private final class PathTable implements Table {
        private final String path;

        PathTable(String path) {
            this.path = path;
        }

        @Override
        public Engine engine() {
            return engine;
        }

        @Override
        public Snapshot load(Long version, Long timestampMs) {
            SnapshotBuilder builder = TableManager.loadSnapshot(path);
            if (version != null) {
                builder = builder.atVersion(version);
            }
            if (timestampMs != null) {
                builder = builder.atTimestamp(timestampMs, load(null, null));
            }
            return builder.build(engine);
        }

        @Override
        public CommitRange range(Long fromVersion, Long fromMs, Long toVersion, Long toMs) {
            CommitBoundary start = boundary(fromVersion, fromMs);
            CommitBoundary end = boundary(toVersion, toMs);
            CommitRangeBuilder builder =
                    TableManager.loadCommitRange(path, start == null ? CommitBoundary.atVersion(0) : start);
            return (end == null ? builder : builder.withEndBoundary(end)).build(engine);
        }

        private CommitBoundary boundary(Long version, Long timestampMs) {
            if (timestampMs != null) {
                return CommitBoundary.atTimestamp(timestampMs, load(null, null));
            }
            return version == null ? null : CommitBoundary.atVersion(version);
        }

        @Override
        public Snapshot publish(Snapshot snapshot) {
            return snapshot;
        }

        @Override
        public boolean takes(PostCommitHookType kind) {
            return true;
        }
    }
}
