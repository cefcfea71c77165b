package deltalog.conformance.kernel;

import io.delta.kernel.Scan;
import io.delta.kernel.Snapshot;
import io.delta.kernel.data.ColumnarBatch;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.data.Row;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.engine.FileReadResult;
import io.delta.kernel.internal.InternalScanFileUtils;
import io.delta.kernel.internal.data.ScanStateRow;
import io.delta.kernel.internal.util.Utils;
import io.delta.kernel.types.MetadataColumnSpec;
import io.delta.kernel.types.StructType;
import io.delta.kernel.utils.CloseableIterator;
import io.delta.kernel.utils.FileStatus;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** Reads rows as the kernel's examples do. The tables of the kit are small, so that all batches are kept. */
final class Reading {
    private Reading() {}

    static List<FilteredColumnarBatch> rows(Engine engine, Snapshot snapshot) throws IOException {
        return rows(engine, snapshot.getScanBuilder().build());
    }

    /** The rows with {@code _row_id} and {@code _row_commit_version}. */
    static List<FilteredColumnarBatch> trackedRows(Engine engine, Snapshot snapshot) throws IOException {
        StructType schema = snapshot.getSchema()
                .addMetadataColumn("_row_id", MetadataColumnSpec.ROW_ID)
                .addMetadataColumn("_row_commit_version", MetadataColumnSpec.ROW_COMMIT_VERSION);
        return rows(engine, snapshot.getScanBuilder().withReadSchema(schema).build());
    }

    private static List<FilteredColumnarBatch> rows(Engine engine, Scan scan) throws IOException {
        Row state = scan.getScanState(engine);
        StructType physical = ScanStateRow.getPhysicalDataReadSchema(state);
        List<FilteredColumnarBatch> found = new ArrayList<>();
        try (CloseableIterator<FilteredColumnarBatch> batches = scan.getScanFiles(engine)) {
            while (batches.hasNext()) {
                try (CloseableIterator<Row> files = batches.next().getRows()) {
                    while (files.hasNext()) {
                        Row file = files.next();
                        FileStatus status = InternalScanFileUtils.getAddFileStatus(file);
                        found.addAll(logical(engine, state, file, data(engine, status, physical)));
                    }
                }
            }
        }
        return found;
    }

    /** The batches of a data file. */
    static List<ColumnarBatch> data(Engine engine, FileStatus file, StructType schema) throws IOException {
        List<ColumnarBatch> found = new ArrayList<>();
        try (CloseableIterator<FileReadResult> results = engine.getParquetHandler()
                .readParquetFiles(Utils.singletonCloseableIterator(file), schema, Optional.empty())) {
            while (results.hasNext()) {
                found.add(results.next().getData());
            }
        }
        return found;
    }

    /** The logical batches for the batches of the data file that the row {@code file} of a scan describes. */
    static List<FilteredColumnarBatch> logical(Engine engine, Row state, Row file, List<ColumnarBatch> data)
            throws IOException {
        List<FilteredColumnarBatch> found = new ArrayList<>();
        try (CloseableIterator<FilteredColumnarBatch> batches =
                Scan.transformPhysicalData(engine, state, file, iterator(data))) {
            while (batches.hasNext()) {
                found.add(batches.next());
            }
        }
        return found;
    }

    static <T> CloseableIterator<T> iterator(List<T> values) {
        return Utils.toCloseableIterator(values.iterator());
    }
}
