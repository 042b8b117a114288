import java.util.Map;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** What a managed service refuses: segments below 50 MiB, an own cleaning, too few replicas. */
public class RefusingPolicy implements CreateTopicPolicy, AlterConfigPolicy {
    private static void check(Map<String, String> configs) {
        String segment = configs.get("segment.bytes");
        if (segment != null && Long.parseLong(segment) < 52428800L) {
            throw new PolicyViolationException("segment.bytes must be at least 52428800");
        }
        if (configs.containsKey("min.cleanable.dirty.ratio")) {
            throw new PolicyViolationException("min.cleanable.dirty.ratio cannot be set");
        }
    }

    @Override
    public void validate(CreateTopicPolicy.RequestMetadata request) {
        if (request.topic().contains("three-replicas")) {
            throw new PolicyViolationException("Topic replication factor must be 3");
        }
        check(request.configs());
    }

    @Override
    public void validate(AlterConfigPolicy.RequestMetadata request) {
        check(request.configs());
    }

    @Override
    public void configure(Map<String, ?> configs) {
    }

    @Override
    public void close() {
    }
}
