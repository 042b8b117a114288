// Reads as a member of a share group (KIP-932), acknowledges, and leaves.
// Arguments: bootstrap servers, group, topic, where the group begins ("earliest", or
// "latest", Kafka's default), how many records to accept at most, keys of records to
// give back. It prints the keys of what it accepts.

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

class ReadShareGroup {
    private static final int POLLS_FOR_THE_FIRST = 50;
    private static final int POLLS_FOR_MORE = 10;

    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        if (arguments[3].equals("earliest")) {
            begin(config, arguments[1]);
        }
        config.put("group.id", arguments[1]);
        config.put("share.acknowledgement.mode", "explicit");
        config.put("share.acquire.mode", "record_limit");
        config.put("max.poll.records", 10);
        int most = Integer.parseInt(arguments[4]);
        List<String> back = Arrays.asList(arguments).subList(5, arguments.length);
        StringDeserializer text = new StringDeserializer();
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(config, text, text)) {
            consumer.subscribe(List.of(arguments[2]));
            read(consumer, most, back);
        }
    }

    private static void begin(Properties config, String group) throws Exception {
        ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
        try (Admin admin = Admin.create(config)) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            admin.incrementalAlterConfigs(Map.of(resource,
                    List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET)))).all().get();
        }
    }

    private static void read(
            KafkaShareConsumer<String, String> consumer, int most, List<String> back) {
        int found = 0;
        int idle = 0;
        while (found < most
                && idle < (found == 0 ? POLLS_FOR_THE_FIRST : POLLS_FOR_MORE)) {
            int before = found;
            for (ConsumerRecord<String, String> each :
                    consumer.poll(Duration.ofMillis(300))) {
                if (found < most && !back.contains(each.key())) {
                    consumer.acknowledge(each, AcknowledgeType.ACCEPT);
                    System.out.println(each.key());
                    found++;
                } else {
                    consumer.acknowledge(each, AcknowledgeType.RELEASE);
                }
            }
            Map<TopicIdPartition, Optional<KafkaException>> done = consumer.commitSync();
            for (Optional<KafkaException> each : done.values()) {
                if (each.isPresent()) {
                    throw each.get();
                }
            }
            idle = found > before ? 0 : idle + 1;
        }
    }
}
