// Writes and reads as an application does.
// Arguments: "write", bootstrap servers, topic, how many records, what their keys begin
// with: ten to a transaction. Or "read", bootstrap servers, group, its protocol, how many
// records at most, topics: prints their keys, commits what it has read, and leaves.

import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

class Application {
    public static void main(String[] arguments) {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[1]);
        if (arguments[0].equals("write")) {
            write(config, arguments[2], Integer.parseInt(arguments[3]), arguments[4]);
            return;
        }
        config.put("group.id", arguments[2]);
        config.put("group.protocol", arguments[3]);
        String[] topics = Arrays.copyOfRange(arguments, 5, arguments.length);
        read(config, Integer.parseInt(arguments[4]), List.of(topics));
    }

    private static void write(Properties config, String topic, int count, String prefix) {
        config.put("transactional.id", "writes-" + topic);
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(config, text, text)) {
            producer.initTransactions();
            for (int done = 0; done < count; done += 10) {
                producer.beginTransaction();
                for (int i = done; i < Math.min(done + 10, count); i++) {
                    producer.send(new ProducerRecord<>(topic, prefix + i, "value"));
                }
                producer.commitTransaction();
            }
        }
    }

    private static void read(Properties config, int most, List<String> topics) {
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", "read_committed");
        StringDeserializer text = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(config, text, text)) {
            consumer.subscribe(topics);
            Map<TopicPartition, OffsetAndMetadata> places = new HashMap<>();
            int found = 0;
            while (found < most && !isAtEnd(consumer)) {
                for (ConsumerRecord<String, String> each :
                        consumer.poll(Duration.ofMillis(200))) {
                    if (found == most) {
                        break;
                    }
                    found++;
                    System.out.println(each.key());
                    places.put(
                            new TopicPartition(each.topic(), each.partition()),
                            new OffsetAndMetadata(each.offset() + 1));
                }
            }
            consumer.commitSync(places);
        }
    }

    private static boolean isAtEnd(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
        return !ends.isEmpty()
                && ends.entrySet().stream()
                        .allMatch(each -> consumer.position(each.getKey()) >= each.getValue());
    }
}
