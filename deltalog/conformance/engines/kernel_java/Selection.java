package deltalog.conformance.kernel;

import io.delta.kernel.data.ColumnVector;
import io.delta.kernel.types.BooleanType;
import io.delta.kernel.types.DataType;
import java.util.function.IntPredicate;

/** Which rows of a batch count. */
final class Selection implements ColumnVector {
    private final int size;
    private final IntPredicate selects;

    Selection(int size, IntPredicate selects) {
        this.size = size;
        this.selects = selects;
    }

    @Override
    public DataType getDataType() {
        return BooleanType.BOOLEAN;
    }

    @Override
    public int getSize() {
        return size;
    }

    @Override
    public void close() {}

    @Override
    public boolean isNullAt(int row) {
        return false;
    }

    @Override
    public boolean getBoolean(int row) {
        return selects.test(row);
    }
}
