import java.util.Arrays;
import org.codelibs.opensearch.runner.OpenSearchRunner;

/** Runs one member of a cluster; its name is the first argument, the others are the runner's. */
public class Member {
    public static void main(String[] arguments) throws Exception {
        String name = arguments[0];
        OpenSearchRunner runner = new OpenSearchRunner();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                runner.close();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        // The runner would forbid the discovery of other nodes, and call each node "Node 1".
        runner.onBuild((number, settings) -> {
            settings.put("node.name", name);
            settings.put("discovery.type", "zen");
        });
        runner.build(Arrays.copyOfRange(arguments, 1, arguments.length));
        Thread.currentThread().join();
    }
}
