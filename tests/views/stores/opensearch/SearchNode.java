import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.opensearch.analysis.common.CommonAnalysisPlugin;
import org.opensearch.common.logging.LogConfigurator;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.index.mapper.MapperExtrasPlugin;
import org.opensearch.index.reindex.ReindexPlugin;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.painless.PainlessPlugin;
import org.opensearch.plugins.Plugin;
import org.opensearch.transport.Netty4Plugin;

/** One node on loopback, from jars alone, without authentication: FOLDER HTTP_PORT TRANSPORT_PORT. */
public class SearchNode extends Node {
    SearchNode(Environment environment, List<Class<? extends Plugin>> plugins) {
        super(environment, plugins, true);
    }

    public static void main(String[] words) throws Exception {
        Path folder = Path.of(words[0]);
        Settings settings = Settings.builder()
            .put("path.home", folder.toString())
            .put("cluster.name", "tidelog-tests")
            .put("node.name", "node")
            .put("network.host", "127.0.0.1")
            .put("http.port", words[1])
            .put("transport.port", words[2])
            .put("discovery.type", "single-node")
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
        Environment environment =
            InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), folder.resolve("config"), () -> "node");
        LogConfigurator.configure(environment);
        Node node = new SearchNode(environment, List.of(
            Netty4Plugin.class, CommonAnalysisPlugin.class, PainlessPlugin.class, ReindexPlugin.class,
            MapperExtrasPlugin.class));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.close();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        node.start();
        Thread.currentThread().join();
    }
}
