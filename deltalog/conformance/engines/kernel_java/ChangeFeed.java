package deltalog.conformance.kernel;

import io.delta.kernel.CommitActions;
import io.delta.kernel.CommitRange;
import io.delta.kernel.Snapshot;
import io.delta.kernel.data.ColumnVector;
import io.delta.kernel.data.ColumnarBatch;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.data.MapValue;
import io.delta.kernel.data.Row;
import io.delta.kernel.defaults.internal.data.DefaultColumnarBatch;
import io.delta.kernel.defaults.internal.data.vector.DefaultConstantVector;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.internal.DeltaLogActionUtils.DeltaAction;
import io.delta.kernel.internal.InternalScanFileUtils;
import io.delta.kernel.internal.actions.AddFile;
import io.delta.kernel.internal.actions.Metadata;
import io.delta.kernel.internal.data.GenericRow;
import io.delta.kernel.internal.data.ScanStateRow;
import io.delta.kernel.internal.data.StructRow;
import io.delta.kernel.internal.util.VectorUtils;
import io.delta.kernel.types.LongType;
import io.delta.kernel.types.StringType;
import io.delta.kernel.types.StructField;
import io.delta.kernel.types.StructType;
import io.delta.kernel.types.TimestampType;
import io.delta.kernel.utils.CloseableIterator;
import io.delta.kernel.utils.FileStatus;
import java.io.IOException;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * The change data feed of a range of commits. The kernel resolves the range, says the times, and reads the actions,
 * the data files and the deletion vectors. It leaves to the connector, which is this class, which rows are changes:
 * those of the cdc files of a commit, or otherwise those of the files that the commit adds and removes.
 */
final class ChangeFeed {
    private static final String CHANGE_TYPE = "_change_type";
    private static final String ENABLED = "delta.enableChangeDataFeed";
    private static final Set<DeltaAction> ACTIONS =
            Set.of(DeltaAction.ADD, DeltaAction.REMOVE, DeltaAction.CDC, DeltaAction.METADATA);

    private final Tables.Table table;
    private final Engine engine;
    private final List<FilteredColumnarBatch> found = new ArrayList<>();
    // The scan of the last version of the range, whose schema the rows have.
    private Row state;
    private long version;
    private long timestampMs;

    ChangeFeed(Tables.Table table) {
        this.table = table;
        this.engine = table.engine();
    }

    List<FilteredColumnarBatch> rows(CommitRange range) throws Exception {
        Snapshot start = table.load(range.getStartVersion(), null);
        demand(start.getTableProperties(), start.getVersion());
        Snapshot end = table.load(range.getEndVersion(), null);
        state = end.getScanBuilder().build().getScanState(engine);
        try (CloseableIterator<CommitActions> commits = range.getCommitActions(engine, start, ACTIONS)) {
            while (commits.hasNext()) {
                try (CommitActions commit = commits.next()) {
                    version = commit.getVersion();
                    timestampMs = commit.getTimestamp();
                    take(actions(commit));
                }
            }
        }
        return found;
    }

    private static void demand(Map<String, String> properties, long version) {
        if (!Boolean.parseBoolean(properties.get(ENABLED))) {
            throw new IllegalStateException("change data feeds are off in version " + version);
        }
    }

    private Map<DeltaAction, List<Row>> actions(CommitActions commit) throws IOException {
        Map<DeltaAction, List<Row>> actions = new EnumMap<>(DeltaAction.class);
        ACTIONS.forEach(kind -> actions.put(kind, new ArrayList<>()));
        try (CloseableIterator<ColumnarBatch> batches = commit.getActions()) {
            while (batches.hasNext()) {
                ColumnarBatch batch = batches.next();
                for (DeltaAction kind : ACTIONS) {
                    ColumnVector vector = batch.getColumnVector(batch.getSchema().indexOf(kind.colName));
                    for (int i = 0; i < batch.getSize(); i++) {
                        if (vector.isNullAt(i)) {
                            continue;
                        }
                        if (kind == DeltaAction.METADATA) {
                            demand(Metadata.fromColumnVector(vector, i).getConfiguration(), version);
                        } else {
                            actions.get(kind).add(StructRow.fromStructVector(vector, i));
                        }
                    }
                }
            }
        }
        return actions;
    }

    private void take(Map<DeltaAction, List<Row>> actions) throws IOException {
        List<Row> changes = actions.get(DeltaAction.CDC);
        if (!changes.isEmpty()) {
            for (Row change : changes) {
                takeChangeFile(change);
            }
            return;
        }
        Map<String, Row> removes = new LinkedHashMap<>();
        for (Row remove : actions.get(DeltaAction.REMOVE)) {
            removes.put(path(remove), remove);
        }
        for (Row add : actions.get(DeltaAction.ADD)) {
            Row remove = removes.remove(path(add));
            if (!isChange(add)) {
                continue;
            }
            if (remove == null) {
                takeFile(add, "insert");
            } else {
                takeVectors(remove, add);
            }
        }
        for (Row remove : removes.values()) {
            if (isChange(remove)) {
                takeFile(remove, "delete");
            }
        }
    }

    private void takeFile(Row action, String change) throws IOException {
        for (FilteredColumnarBatch batch : read(action)) {
            take(batch.getData(), batch.getSelectionVector(), constant(change, batch.getData()));
        }
    }

    /** A file that has another deletion vector afterwards: the rows that only one of the vectors leaves. */
    private void takeVectors(Row remove, Row add) throws IOException {
        List<FilteredColumnarBatch> before = read(remove);
        List<FilteredColumnarBatch> after = read(add);
        for (int i = 0; i < before.size(); i++) {
            Optional<ColumnVector> was = before.get(i).getSelectionVector();
            Optional<ColumnVector> is = after.get(i).getSelectionVector();
            ColumnarBatch data = before.get(i).getData();
            Selection gone = new Selection(data.getSize(), row -> selects(was, row) && !selects(is, row));
            Selection back = new Selection(data.getSize(), row -> selects(is, row) && !selects(was, row));
            take(data, Optional.of(gone), constant("delete", data));
            take(data, Optional.of(back), constant("insert", data));
        }
    }

    private static boolean selects(Optional<ColumnVector> selection, int row) {
        return selection.map(vector -> !vector.isNullAt(row) && vector.getBoolean(row)).orElse(true);
    }

    private List<FilteredColumnarBatch> read(Row action) throws IOException {
        Row file = scanFile(action);
        StructType physical = ScanStateRow.getPhysicalDataReadSchema(state);
        return Reading.logical(engine, state, file, Reading.data(engine, status(file), physical));
    }

    private void takeChangeFile(Row change) throws IOException {
        Row file = scanFile(change);
        List<StructField> fields =
                new ArrayList<>(ScanStateRow.getPhysicalDataReadSchema(state).fields());
        fields.add(new StructField(CHANGE_TYPE, StringType.STRING, true));
        List<ColumnarBatch> data = new ArrayList<>();
        List<ColumnVector> changes = new ArrayList<>();
        for (ColumnarBatch batch : Reading.data(engine, status(file), new StructType(fields))) {
            int index = batch.getSchema().indexOf(CHANGE_TYPE);
            changes.add(batch.getColumnVector(index));
            data.add(batch.withDeletedColumnAt(index));
        }
        List<FilteredColumnarBatch> logical = Reading.logical(engine, state, file, data);
        for (int i = 0; i < logical.size(); i++) {
            take(logical.get(i).getData(), logical.get(i).getSelectionVector(), changes.get(i));
        }
    }

    private void take(ColumnarBatch data, Optional<ColumnVector> selection, ColumnVector change) {
        int size = data.getSize();
        int width = data.getSchema().length();
        List<StructField> fields = new ArrayList<>(data.getSchema().fields());
        fields.add(new StructField(CHANGE_TYPE, StringType.STRING, true));
        fields.add(new StructField("_commit_version", LongType.LONG, true));
        fields.add(new StructField("_commit_timestamp", TimestampType.TIMESTAMP, true));
        ColumnVector[] vectors = new ColumnVector[width + 3];
        for (int i = 0; i < width; i++) {
            vectors[i] = data.getColumnVector(i);
        }
        vectors[width] = change;
        vectors[width + 1] = new DefaultConstantVector(LongType.LONG, size, version);
        vectors[width + 2] = new DefaultConstantVector(TimestampType.TIMESTAMP, size, timestampMs * 1000);
        found.add(new FilteredColumnarBatch(
                new DefaultColumnarBatch(size, new StructType(fields), vectors), selection));
    }

    private static ColumnVector constant(String text, ColumnarBatch data) {
        return new DefaultConstantVector(StringType.STRING, data.getSize(), text);
    }

    /** The row of a scan for an add, remove or cdc action. */
    private Row scanFile(Row action) {
        StructType schema = AddFile.SCHEMA_WITHOUT_STATS;
        MapValue partition = value(action, "partitionValues") < 0
                ? VectorUtils.stringStringMapValue(Map.of())
                : action.getMap(value(action, "partitionValues"));
        Map<Integer, Object> add = new HashMap<>();
        add.put(schema.indexOf("path"), path(action));
        add.put(schema.indexOf("partitionValues"), partition);
        add.put(schema.indexOf("size"), 0L); // `status` asks the file system
        add.put(schema.indexOf("modificationTime"), 0L);
        add.put(schema.indexOf("dataChange"), true);
        int vector = value(action, "deletionVector");
        if (vector >= 0) {
            add.put(schema.indexOf("deletionVector"), action.getStruct(vector));
        }
        for (String name : List.of("baseRowId", "defaultRowCommitVersion")) {
            if (value(action, name) >= 0) {
                add.put(schema.indexOf(name), action.getLong(value(action, name)));
            }
        }
        Map<Integer, Object> file = new HashMap<>();
        file.put(InternalScanFileUtils.SCAN_FILE_SCHEMA.indexOf("add"), new GenericRow(schema, add));
        file.put(
                InternalScanFileUtils.SCAN_FILE_SCHEMA.indexOf("tableRoot"),
                ScanStateRow.getTableRoot(state).toUri().toString());
        return new GenericRow(InternalScanFileUtils.SCAN_FILE_SCHEMA, file);
    }

    private FileStatus status(Row file) throws IOException {
        String path = InternalScanFileUtils.getAddFileStatus(file).getPath();
        return engine.getFileSystemClient().getFileStatus(path);
    }

    private static String path(Row action) {
        return action.getString(action.getSchema().indexOf("path"));
    }

    private static boolean isChange(Row action) {
        return action.getBoolean(action.getSchema().indexOf("dataChange"));
    }

    /** The ordinal of a member of an action that is not null, or otherwise -1. */
    private static int value(Row action, String name) {
        int index = action.getSchema().indexOf(name);
        return index < 0 || action.isNullAt(index) ? -1 : index;
    }
}
