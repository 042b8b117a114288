// Joins a share group (KIP-932), polls once it is there, and leaves.
// Arguments: bootstrap servers, group, topic.

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

class JoinShareGroup {
    public static void main(String[] arguments) {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("group.id", arguments[1]);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(config, bytes, bytes)) {
            consumer.subscribe(List.of(arguments[2]));
            for (int i = 0; i < 10; i++) {
                consumer.poll(Duration.ofMillis(300));
            }
        }
    }
}
