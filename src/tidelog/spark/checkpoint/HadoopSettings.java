package tidelog.checkpoint;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.mapred.JobConf;

/**
 * What Hadoop's settings are made of, and what of it a query on one machine does without.
 *
 * <p>Spark sends all of them to the tasks of every operator with state, in every micro-batch. Three in four are defaults
 * of YARN, MapReduce and HDFS, which their own classes know as well; whatever somebody has set stays.
 */
public final class HadoopSettings {
    private static final List<String> NOT_NEEDED =
            Arrays.asList("yarn-default.xml", "mapred-default.xml", "hdfs-default.xml");

    private HadoopSettings() {
    }

    /** How many were taken out. */
    public static int leaveOutDefaults(Configuration settings) {
        HdfsConfiguration.init(); // whoever loads these classes later has all settings read anew
        new JobConf(false);
        List<String> names = new ArrayList<>();
        for (Map.Entry<String, String> one : settings) {
            String[] from = settings.getPropertySources(one.getKey());
            if (from != null && from.length > 0 && NOT_NEEDED.containsAll(Arrays.asList(from))) {
                names.add(one.getKey());
            }
        }
        for (String name : names) {
            settings.unset(name);
        }
        return names.size();
    }
}
