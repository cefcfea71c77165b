package deltalog.conformance.kernel;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.delta.kernel.Meta;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.hadoop.util.VersionInfo;

/**
 * The Delta kernel as an engine of the conformance kit. Reads one request per line from standard input and writes one
 * answer per line to standard output, both as JSON; {@code deltalog/conformance/line_server.py} describes them.
 */
public final class Server {
    // ASCII, because the encoding of standard output depends on the locale.
    static final ObjectMapper JSON = new ObjectMapper().configure(JsonGenerator.Feature.ESCAPE_NON_ASCII, true);

    // Messages by which the kernel says that it lacks a feature, as a regular expression of Python.
    private static final String LACKS =
            "unsupported by this version of Delta Kernel|not (?:yet )?supported yet|is not yet supported"
                    + "|is currently unsupported|variant is not supported|Encountered unsupported Delta data type"
                    + "|Kernel doesn't support writing|This version of Delta Kernel does not support"
                    + "|default values table feature requires IcebergCompatV3"
                    + "|Cannot update schema for table when column mapping is disabled"
                    + "|Row tracking support cannot be changed once the table is created";

    // Exceptions that are faults of a program, and no refusals.
    private static final List<Class<? extends Throwable>> FAULTS = List.of(
            NullPointerException.class,
            ClassCastException.class,
            IndexOutOfBoundsException.class,
            NegativeArraySizeException.class,
            ArithmeticException.class,
            NoSuchElementException.class,
            Error.class);

    private final List<Calls> opened = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        // Output of libraries must not mix with the answers.
        PrintStream answers = System.out;
        System.setOut(System.err);
        answers.println(hello());
        answers.flush();
        Server server = new Server();
        server.opened.add(new Calls(new PathTables()));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(server.answer(JSON.readTree(line))));
            answers.flush();
        }
    }

    private static String hello() throws Exception {
        ObjectNode hello = JSON.createObjectNode();
        hello.put("protocol", 1).put("engine", "kernel-java").put("version", Meta.KERNEL_VERSION);
        hello.putObject("environment")
                .put("java", System.getProperty("java.version"))
                .put("hadoop", VersionInfo.getVersion());
        hello.put("lacks", LACKS);
        Calls.NAMES.forEach(hello.putArray("calls")::add);
        return JSON.writeValueAsString(hello);
    }

    private ObjectNode answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        answer.set("id", request.get("id"));
        try {
            Calls calls = opened.get(request.path("on").asInt(0));
            Path into = request.hasNonNull("into") ? Path.of(request.get("into").asText()) : null;
            Object value = calls.call(request.get("call").asText(), request.path("arguments"), into);
            if (value instanceof Calls) {
                opened.add((Calls) value);
                answer.put("engine", opened.size() - 1);
            } else if (value instanceof RowFile.Written) {
                answer.put("rows", value == RowFile.Written.ROWS ? "parquet" : "none");
            } else {
                answer.set("value", JSON.valueToTree(value));
            }
        } catch (NotSupported reason) {
            answer.put("not_supported", reason.getMessage());
        } catch (Throwable error) {
            error.printStackTrace(); // for the log of the run
            ObjectNode said = answer.putObject(isFault(error) ? "failed" : "refused");
            said.put("type", error.getClass().getSimpleName()).put("message", message(error));
        }
        return answer;
    }

    private static boolean isFault(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            Throwable now = each;
            if (FAULTS.stream().anyMatch(kind -> kind.isInstance(now))) {
                return true;
            }
        }
        return false;
    }

    private static String message(Throwable error) {
        StringBuilder text = new StringBuilder(String.valueOf(error.getMessage()));
        int count = 0;
        for (Throwable cause = error.getCause(); cause != null && count < 5; cause = cause.getCause(), count++) {
            if (text.indexOf(String.valueOf(cause.getMessage())) < 0) {
                text.append("; caused by ").append(cause.getClass().getSimpleName());
                text.append(": ").append(cause.getMessage());
            }
        }
        return text.toString();
    }

    /** An operation that the kernel does not have. The message becomes the reason why a case is skipped. */
    static final class NotSupported extends RuntimeException {
        NotSupported(String message) {
            super(message);
        }
    }
}
