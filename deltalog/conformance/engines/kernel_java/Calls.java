package deltalog.conformance.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.delta.kernel.CommitActions;
import io.delta.kernel.CommitRange;
import io.delta.kernel.Operation;
import io.delta.kernel.Snapshot;
import io.delta.kernel.Transaction;
import io.delta.kernel.TransactionCommitResult;
import io.delta.kernel.data.Row;
import io.delta.kernel.exceptions.ConcurrentTransactionException;
import io.delta.kernel.exceptions.StartVersionNotFoundException;
import io.delta.kernel.hook.PostCommitHook;
import io.delta.kernel.internal.types.DataTypeJsonSerDe;
import io.delta.kernel.transaction.UpdateTableTransactionBuilder;
import io.delta.kernel.types.StructType;
import io.delta.kernel.utils.CloseableIterable;
import io.delta.kernel.utils.CloseableIterator;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/** The calls of an {@code Engine} of the kit. Each one loads the table anew, unless a transaction is open. */
final class Calls {
    static final List<String> NAMES = List.of(
            "rows",
            "tracked_rows",
            "version_at",
            "latest_version",
            "history",
            "changes",
            "create",
            "append",
            "append_once",
            "set_properties",
            "set_type",
            "checkpoint",
            "of_catalog",
            "begin");

    private final Tables tables;
    // The snapshot on which the next commit is made, or null.
    private final Tables.Table begunTable;
    private final Snapshot begun;

    Calls(Tables tables) {
        this(tables, null, null);
    }

    private Calls(Tables tables, Tables.Table begunTable, Snapshot begun) {
        this.tables = tables;
        this.begunTable = begunTable;
        this.begun = begun;
    }

    Object call(String name, JsonNode arguments, Path into) throws Exception {
        switch (name) {
            case "of_catalog":
                return new Calls(new CatalogTables(arguments.get("url").asText(), text(arguments, "token")));
            case "create":
                create(arguments);
                return null;
            case "append":
            case "append_once":
            case "set_properties":
            case "set_type":
                write(name, arguments);
                return null;
            case "overwrite":
                throw new Server.NotSupported("overwriting");
            case "delete":
                throw new Server.NotSupported("deleting by condition");
            case "restore":
                throw new Server.NotSupported("restoring a version");
            default:
                return read(name, arguments, into);
        }
    }

    private Object read(String name, JsonNode arguments, Path into) throws Exception {
        Tables.Table table = tables.open(arguments.get("path").asText());
        switch (name) {
            case "rows":
                Snapshot snapshot = table.load(number(arguments, "version"), number(arguments, "timestamp_ms"));
                return RowFile.write(table.engine(), Reading.rows(table.engine(), snapshot), into);
            case "tracked_rows":
                Snapshot tracked = table.load(number(arguments, "version"), null);
                return RowFile.write(table.engine(), Reading.trackedRows(table.engine(), tracked), into);
            case "version_at":
                return table.load(null, number(arguments, "timestamp_ms")).getVersion();
            case "latest_version":
                return table.load(null, null).getVersion();
            case "history":
                return history(table);
            case "changes":
                ChangeFeed feed = new ChangeFeed(table);
                CommitRange range = table.range(
                        number(arguments, "from_version"),
                        number(arguments, "from_timestamp_ms"),
                        number(arguments, "to_version"),
                        number(arguments, "to_timestamp_ms"));
                return RowFile.write(table.engine(), feed.rows(range), into);
            case "checkpoint":
                table.publish(table.load(null, null)).writeCheckpoint(table.engine());
                return null;
            case "begin":
                return new Calls(tables, table, table.load(null, null));
            default:
                throw new Server.NotSupported("the call " + name);
        }
    }

    /** The times of all commits that are there, as the kernel says them in a range of commits. */
    private static Map<String, Long> history(Tables.Table table) throws Exception {
        CommitRange range;
        try {
            range = table.range(0L, null, null, null);
        } catch (StartVersionNotFoundException gone) {
            range = table.range(gone.getEarliestAvailableVersion().orElseThrow(() -> gone), null, null, null);
        }
        Map<Long, Long> times = new TreeMap<>();
        try (CloseableIterator<CommitActions> commits = range.getCommitActions(table.engine(), Set.of())) {
            while (commits.hasNext()) {
                try (CommitActions commit = commits.next()) {
                    times.put(commit.getVersion(), commit.getTimestamp());
                }
            }
        }
        Map<String, Long> found = new HashMap<>();
        times.forEach((version, time) -> found.put(String.valueOf(version), time));
        return found;
    }

    private void create(JsonNode arguments) throws Exception {
        ObjectNode schema = Server.JSON.createObjectNode().put("type", "struct");
        arguments.get("schema").get("columns").fields().forEachRemaining(column -> {
            ObjectNode field = schema.withArray("fields").addObject();
            field.put("name", column.getKey()).put("nullable", true).putObject("metadata");
            field.set("type", column.getValue());
        });
        StructType columns = DataTypeJsonSerDe.deserializeStructType(schema.toString());
        Map<String, String> properties = new HashMap<>();
        arguments.path("properties").fields().forEachRemaining(each -> properties.put(
                each.getKey(), each.getValue().asText()));
        List<String> partitionBy = new ArrayList<>();
        arguments.path("partition_by").forEach(each -> partitionBy.add(each.asText()));
        tables.create(arguments.get("path").asText(), columns, partitionBy, properties);
    }

    private void write(String name, JsonNode arguments) throws Exception {
        Tables.Table table = begun == null ? tables.open(arguments.get("path").asText()) : begunTable;
        Snapshot snapshot = begun == null ? table.load(null, null) : begun;
        boolean appends = name.startsWith("append");
        Operation operation = appends ? Operation.WRITE : Operation.MANUAL_UPDATE;
        UpdateTableTransactionBuilder builder = snapshot.buildUpdateTableTransaction(Tables.ENGINE_INFO, operation);
        if (name.equals("set_properties")) {
            builder = withProperties(builder, arguments.get("properties"));
        } else if (name.equals("set_type")) {
            builder = builder.withUpdatedSchema(
                    widened(snapshot, arguments.get("column").asText(), arguments.get("type")));
        } else if (name.equals("append_once")) {
            builder = builder.withTransactionId(
                    arguments.get("application").asText(),
                    arguments.get("application_version").asLong());
        }
        Transaction transaction;
        try {
            transaction = builder.build(table.engine());
        } catch (ConcurrentTransactionException written) {
            return; // the kernel compares the identifier with the snapshot before a connector writes rows
        }
        List<Row> actions = new ArrayList<>();
        if (appends) {
            String file = arguments.get("rows").get("parquet").asText();
            actions = new Appending(table.engine(), transaction).actions(file);
        }
        commit(table, transaction, actions);
    }

    private static UpdateTableTransactionBuilder withProperties(
            UpdateTableTransactionBuilder builder, JsonNode properties) {
        Map<String, String> added = new HashMap<>();
        Set<String> removed = new HashSet<>();
        properties.fields().forEachRemaining(each -> {
            if (each.getValue().isNull()) {
                removed.add(each.getKey());
            } else {
                added.put(each.getKey(), each.getValue().asText());
            }
        });
        UpdateTableTransactionBuilder made = added.isEmpty() ? builder : builder.withTablePropertiesAdded(added);
        return removed.isEmpty() ? made : made.withTablePropertiesRemoved(removed);
    }

    /** The schema with another type of a column, or of a field of a struct, given by its path with dots. */
    private static StructType widened(Snapshot snapshot, String column, JsonNode type) throws Exception {
        JsonNode schema = Server.JSON.readTree(DataTypeJsonSerDe.serializeStructType(snapshot.getSchema()));
        JsonNode struct = schema;
        ObjectNode found = null;
        for (String name : column.split("\\.")) {
            found = null;
            for (JsonNode field : struct.path("fields")) {
                found = field.get("name").asText().equals(name) ? (ObjectNode) field : found;
            }
            if (found == null) {
                throw new IllegalArgumentException("the table has no column " + column);
            }
            struct = found.get("type");
        }
        found.set("type", type);
        return DataTypeJsonSerDe.deserializeStructType(schema.toString());
    }

    static void commit(Tables.Table table, Transaction transaction, List<Row> actions) throws IOException {
        CloseableIterable<Row> data = actions.isEmpty()
                ? CloseableIterable.emptyIterable()
                : CloseableIterable.inMemoryIterable(Reading.iterator(actions));
        TransactionCommitResult done = transaction.commit(table.engine(), data);
        for (PostCommitHook hook : done.getPostCommitHooks()) {
            if (table.takes(hook.getType())) {
                hook.threadSafeInvoke(table.engine());
            }
        }
    }

    private static Long number(JsonNode arguments, String name) {
        return arguments.hasNonNull(name) ? Long.valueOf(arguments.get(name).asLong()) : null;
    }

    private static String text(JsonNode arguments, String name) {
        return arguments.hasNonNull(name) ? arguments.get(name).asText() : null;
    }
}
