package tidelog.checkpoint;

import org.apache.spark.sql.Row;
import org.apache.spark.sql.execution.QueryExecution;

import scala.Tuple2;
import scala.collection.Iterator;

/** What a plan that has run has observed, in one text: each question of its own from Python is a round trip. */
public final class ObservedMetrics {
    private ObservedMetrics() {
    }

    /** A line for each number: the name, that of the field, the number; tabs between them. Null is 0. */
    public static String of(QueryExecution execution) {
        StringBuilder said = new StringBuilder();
        Iterator<Tuple2<String, Row>> found = execution.observedMetrics().iterator();
        while (found.hasNext()) {
            Tuple2<String, Row> one = found.next();
            Row row = one._2();
            String[] fields = row.schema().fieldNames();
            for (int at = 0; at < fields.length; at++) {
                Object value = row.get(at);
                long number = value instanceof Number ? ((Number) value).longValue() : 0;
                said.append(one._1()).append('\t').append(fields[at]).append('\t').append(number).append('\n');
            }
        }
        return said.toString();
    }
}
