package tidelog.checkpoint;

import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.streaming.WriteToStream;
import org.apache.spark.sql.connector.catalog.SupportsWrite;

import scala.Function1;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * {@code spark.sql.extensions}: a query in update mode into a topic is refused when it is started, with the way to do it.
 *
 * <p>Spark has no update mode for sinks in Python. It would say so when the query runs, before any of our Python does,
 * and not what to do instead.
 */
public final class SinkModes extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
    private static final String SINK = "tidelog";
    private static final String UPDATE = "Update";
    private static final String REFUSAL =
            "Spark has no update mode for a sink in Python, such as tidelog; use"
                    + " .foreachBatch(tidelog.spark.topic_writer(TOPIC, bootstrap=...)) instead of .format(\"tidelog\"),"
                    + " which writes with the same commit";

    @Override
    public BoxedUnit apply(SparkSessionExtensions extensions) {
        extensions.injectCheckRule(new ForSession<>());
        return BoxedUnit.UNIT;
    }

    /** Whatever the session is: Spark 4.2 and later have two classes of that name. */
    private static final class ForSession<Session>
            extends AbstractFunction1<Session, Function1<LogicalPlan, BoxedUnit>> {
        @Override
        public Function1<LogicalPlan, BoxedUnit> apply(Session session) {
            return new Check();
        }
    }

    private static final class Check extends AbstractFunction1<LogicalPlan, BoxedUnit> {
        @Override
        public BoxedUnit apply(LogicalPlan plan) {
            if (plan instanceof WriteToStream && isRefused((WriteToStream) plan)) {
                throw new IllegalArgumentException(REFUSAL);
            }
            return BoxedUnit.UNIT;
        }

        /** Sinks of old, such as that of foreachBatch, have no name and throw when they are asked for it. */
        private static boolean isRefused(WriteToStream write) {
            return write.outputMode().toString().equals(UPDATE)
                    && write.sink() instanceof SupportsWrite
                    && write.sink().name().equals(SINK);
        }
    }
}
