import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.requests.RequestHeader;

/**
 * Answers each line of standard input with one line of hex, or with "refused: why".
 *
 * encode NAME VERSION JSON   Kafka's own bytes of the message that the JSON describes
 * echo NAME VERSION HEX      Kafka's own bytes of the message that it decoded from these bytes
 * header HEX                 api key, version, correlation id and client id that Kafka reads from a request's frame
 */
class Messages {
    static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine())
            out.println(answer(line.split(" ", 4)));
        out.flush();
    }

    static String answer(String[] words) {
        try {
            if (words[0].equals("header"))
                return header(words[1]);
            short version = Short.parseShort(words[2]);
            Class<?> type = Class.forName("org.apache.kafka.common.message." + words[1]);
            Message message = words[0].equals("encode") ? fromJson(type, version, words[3]) : fromBytes(type, version, words[3]);
            ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            return HexFormat.of().formatHex(bytes);
        } catch (Throwable error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            return ("refused: " + cause).replace('\n', ' ');
        }
    }

    static Message fromJson(Class<?> type, short version, String json) throws Exception {
        Class<?> converter = Class.forName(type.getName() + "JsonConverter");
        return (Message) converter.getMethod("read", JsonNode.class, short.class).invoke(null, MAPPER.readTree(json), version);
    }

    static Message fromBytes(Class<?> type, short version, String hex) throws Exception {
        ByteBufferAccessor bytes = new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
        Message message = (Message) type.getConstructor(Readable.class, short.class).newInstance(bytes, version);
        if (bytes.remaining() > 0)
            throw new IllegalStateException(bytes.remaining() + " bytes left");
        return message;
    }

    static String header(String hex) {
        ByteBuffer buffer = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        RequestHeader header = RequestHeader.parse(buffer);
        return header.apiKey().id + " " + header.apiVersion() + " " + header.correlationId() + " " + header.clientId()
            + " " + buffer.position();
    }
}
