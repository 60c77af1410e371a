package tidelog.checkpoint;

import java.io.ByteArrayOutputStream;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.unsafe.types.UTF8String;

import scala.collection.Iterator;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction1;

/**
 * The rows of a micro-batch, texts and long numbers, as bytes: the partitions one after the other, each row's columns one
 * after the other.
 *
 * <pre>
 *   text    its length in bytes, 4 bytes, -1 for null; its bytes, UTF-8
 *   number  8 bytes; null is 0
 * </pre>
 *
 * <p>{@code foreachBatch} is given a DataFrame over rows that are there already, or will be when tasks run. To collect it
 * is to analyse, plan and compile a second query, with an entry in the list of queries, and a socket with a thread of its
 * own. Here the tasks are run, and nothing else.
 */
public final class TextRows {
    private static final int PART_MAX = 4 << 20; // of the bytes that go to Python at once, as text

    private final byte[] all;
    private int taken;

    private TextRows(byte[] all) {
        this.all = all;
    }

    /** Runs the tasks; null, and nothing is run, where the rows are not such as Spark's sink hands out, or not texts. */
    public static TextRows of(Object rows) {
        RDD<InternalRow> found;
        String kinds;
        try {
            Dataset<?> dataset = (Dataset<?>) rows;
            LogicalPlan plan = dataset.logicalPlan();
            if (!(plan instanceof LogicalRDD)) {
                return null;
            }
            found = ((LogicalRDD) plan).rdd();
            kinds = kindsOf(dataset.schema().fields());
        } catch (ClassCastException | LinkageError another) { // of another version of Spark
            return null;
        }
        if (kinds == null) {
            return null;
        }
        Object parts = found.sparkContext().runJob(found, new Packing(kinds), ClassTag$.MODULE$.apply(byte[].class));
        return new TextRows(joined((byte[][]) parts));
    }

    /** The next bytes, behind one that is 1 if there are more. */
    public byte[] next() {
        int count = Math.min(all.length - taken, PART_MAX);
        byte[] part = new byte[count + 1];
        System.arraycopy(all, taken, part, 1, count);
        taken += count;
        part[0] = (byte) (taken < all.length ? 1 : 0);
        return part;
    }

    private static String kindsOf(StructField[] fields) {
        StringBuilder kinds = new StringBuilder();
        for (StructField field : fields) {
            DataType type = field.dataType();
            if (type instanceof StringType) {
                kinds.append('s');
            } else if (type instanceof LongType) {
                kinds.append('q');
            } else {
                return null;
            }
        }
        return kinds.toString();
    }

    private static byte[] joined(byte[][] parts) {
        if (parts.length == 1) {
            return parts[0];
        }
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (byte[] part : parts) {
            all.write(part, 0, part.length);
        }
        return all.toByteArray();
    }

    /** Of one partition, in its task. A row may be overwritten by the next one. */
    private static final class Packing extends AbstractFunction1<Iterator<InternalRow>, byte[]> implements Serializable {
        private static final long serialVersionUID = 1L;

        private final String kinds;

        Packing(String kinds) {
            this.kinds = kinds;
        }

        @Override
        public byte[] apply(Iterator<InternalRow> rows) {
            ByteArrayOutputStream packed = new ByteArrayOutputStream();
            ByteBuffer number = ByteBuffer.allocate(Long.BYTES);
            while (rows.hasNext()) {
                InternalRow row = rows.next();
                for (int at = 0; at < kinds.length(); at++) {
                    if (kinds.charAt(at) == 'q') {
                        packed.write(number.putLong(0, row.isNullAt(at) ? 0 : row.getLong(at)).array(), 0, Long.BYTES);
                    } else {
                        byte[] text = row.isNullAt(at) ? null : bytesOf(row.getUTF8String(at));
                        packed.write(number.putInt(0, text == null ? -1 : text.length).array(), 0, Integer.BYTES);
                        packed.write(text == null ? new byte[0] : text, 0, text == null ? 0 : text.length);
                    }
                }
            }
            return packed.toByteArray();
        }

        /** What is no UTF-8 becomes what Java makes of it: Python is strict. */
        private static byte[] bytesOf(UTF8String text) {
            return text.isValid() ? text.getBytes() : text.toString().getBytes(StandardCharsets.UTF_8);
        }
    }
}
