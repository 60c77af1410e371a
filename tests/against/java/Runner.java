import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;
import org.slf4j.LoggerFactory;

/**
 * Runs main classes one after another in one Java machine, because each start of one costs seconds.
 *
 * One JSON object a line on stdin: {"main": class, "arguments": [...], "stdin": text}; for each, one on stdout: {"status", "out", "err"}.
 * A tool that exits by Kafka's own Exit only ends its turn; its shutdown hooks run when its turn is over.
 */
public final class Runner {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long TURN_MILLISECONDS = 90_000;
    private static final List<Runnable> HOOKS = new ArrayList<>();

    /** What the tool exited with first: some catch everything, this exit too, and exit once more with a complaint. */
    private static volatile Integer exited;

    private static final class Exited extends RuntimeException {
        Exited() {
            super(null, null, false, false);
        }
    }

    private static void exit(int status) {
        if (exited == null) exited = status;
        throw new Exited();
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err); // so that loggers, which keep the stream they found, never write among the answers
        LoggerFactory.getLogger(Runner.class);
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            answers.println(JSON.writeValueAsString(turn(JSON.readTree(line))));
        }
        System.exit(0);
    }

    private static ObjectNode turn(JsonNode order) throws InterruptedException {
        PrintStream out = System.out;
        PrintStream err = System.err;
        InputStream in = System.in;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        System.setOut(new PrintStream(said, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(order.path("stdin").asText("").getBytes(StandardCharsets.UTF_8)));
        int[] status = {-1};
        exited = null;
        Thread thread = new Thread(() -> status[0] = run(order));
        thread.start();
        thread.join(TURN_MILLISECONDS);
        System.out.flush();
        System.setOut(out);
        System.setErr(err);
        System.setIn(in);
        ObjectNode answer = JSON.createObjectNode();
        answer.put("status", status[0]);
        answer.put("out", said.toString(StandardCharsets.UTF_8));
        answer.put("err", complained.toString(StandardCharsets.UTF_8) + (thread.isAlive() ? "\nnot done in time" : ""));
        return answer;
    }

    private static int run(JsonNode order) {
        List<String> arguments = new ArrayList<>();
        order.path("arguments").forEach(argument -> arguments.add(argument.asText()));
        try {
            Class<?> tool = Class.forName(order.path("main").asText());
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException wrapped) {
            complain(wrapped.getCause());
        } catch (Throwable thrown) {
            complain(thrown);
        }
        runHooks();
        return exited == null ? 0 : exited;
    }

    private static void complain(Throwable thrown) {
        if (thrown instanceof Exited) return;
        thrown.printStackTrace();
        if (exited == null) exited = 1;
    }

    private static void runHooks() {
        for (Runnable hook : HOOKS) {
            try {
                hook.run();
            } catch (Exited ignored) {
                // the tool ended itself a second time
            }
        }
        HOOKS.clear();
    }
}
