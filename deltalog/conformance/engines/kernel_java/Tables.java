package deltalog.conformance.kernel;

import io.delta.kernel.CommitRange;
import io.delta.kernel.Snapshot;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.expressions.Column;
import io.delta.kernel.hook.PostCommitHook.PostCommitHookType;
import io.delta.kernel.transaction.CreateTableTransactionBuilder;
import io.delta.kernel.transaction.DataLayoutSpec;
import io.delta.kernel.types.StructType;
import io.delta.kernel.utils.CloseableIterable;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Where tables are: at a path, or in a catalog. */
interface Tables {
    String ENGINE_INFO = "deltalog-conformance";

    Table open(String name) throws Exception;

    void create(String name, StructType schema, List<String> partitionBy, Map<String, String> properties)
            throws Exception;

    /** Commit version 0 of a table. */
    static void commitNew(
            CreateTableTransactionBuilder builder,
            Engine engine,
            List<String> partitionBy,
            Map<String, String> properties) {
        CreateTableTransactionBuilder made = properties.isEmpty() ? builder : builder.withTableProperties(properties);
        if (!partitionBy.isEmpty()) {
            List<Column> columns = partitionBy.stream().map(Column::new).collect(Collectors.toList());
            made = made.withDataLayoutSpec(DataLayoutSpec.partitioned(columns));
        }
        made.build(engine).commit(engine, CloseableIterable.emptyIterable());
    }

    /** One table. Nothing of its log is kept between the calls. */
    interface Table {
        Engine engine();

        /** The snapshot of a version, or of a time in ms; with null for both, the latest one. */
        Snapshot load(Long version, Long timestampMs) throws Exception;

        /** The commits between two ends, each of which is a version or a time in ms, or null. */
        CommitRange range(Long fromVersion, Long fromMs, Long toVersion, Long toMs) throws Exception;

        /** The snapshot, with its commits in the log. */
        Snapshot publish(Snapshot snapshot) throws Exception;

        /** Whether hooks of this kind are run after a commit. */
        boolean takes(PostCommitHookType kind);
    }
}
